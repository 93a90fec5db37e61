module oras-roundtrip

go 1.25.0

require (
	github.com/opencontainers/image-spec v1.1.1
	oras.land/oras-go/v2 v2.6.2
)

require (
	github.com/opencontainers/go-digest v1.0.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
)
