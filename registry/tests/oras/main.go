// Pushes an artifact and one attached to it with the library the oras program is made of, lists the attachment,
// copies everything to an OCI layout and prints the digest of the artifact.
//
//	oras-roundtrip HOST/REPOSITORY LAYOUT_DIRECTORY
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/registry/remote"
)

const rootfs = "application/vnd.shoal.rootfs.tar.gz"

func main() {
	if err := roundtrip(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func roundtrip(ctx context.Context, reference, directory string) error {
	repository, err := remote.NewRepository(reference)
	if err != nil {
		return err
	}
	repository.PlainHTTP = true

	source := memory.New()
	layer, err := oras.PushBytes(ctx, source, rootfs, bytes.Repeat([]byte("rootfs of a machine\n"), 100_000))
	if err != nil {
		return err
	}
	artifact, err := oras.PackManifest(ctx, source, oras.PackManifestVersion1_1, "application/vnd.shoal.os-image",
		oras.PackManifestOptions{Layers: []ocispec.Descriptor{layer}})
	if err != nil {
		return err
	}
	attached, err := oras.PackManifest(ctx, source, oras.PackManifestVersion1_1, "application/vnd.shoal.note",
		oras.PackManifestOptions{Subject: &artifact})
	if err != nil {
		return err
	}
	if err := source.Tag(ctx, artifact, "v1"); err != nil {
		return err
	}
	if _, err := oras.Copy(ctx, source, "v1", repository, "v1", oras.DefaultCopyOptions); err != nil {
		return fmt.Errorf("push: %w", err)
	}
	if err := oras.CopyGraph(ctx, source, repository, attached, oras.DefaultCopyGraphOptions); err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	var found []ocispec.Descriptor
	collect := func(referrers []ocispec.Descriptor) error {
		found = append(found, referrers...)
		return nil
	}
	if err := repository.Referrers(ctx, artifact, "", collect); err != nil {
		return fmt.Errorf("discover: %w", err)
	}
	if len(found) != 1 || found[0].Digest != attached.Digest {
		return fmt.Errorf("discover: got %v, want %v", found, attached)
	}

	target, err := oci.New(directory)
	if err != nil {
		return err
	}
	pulled, err := oras.Copy(ctx, repository, "v1", target, "v1", oras.DefaultCopyOptions)
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	if pulled.Digest != artifact.Digest {
		return fmt.Errorf("pull: got %s, want %s", pulled.Digest, artifact.Digest)
	}
	fmt.Println(pulled.Digest)
	return nil
}
