//! The program `shoal`; its code is in the library of this package.

/// Steps and responses allocate many small values; the allocator of the C library takes a quarter of the CPU time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    shoal::cli::main()
}
