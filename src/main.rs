//! The program; everything is in the library.

/// Steps and answers are made of many small values; the C library takes a quarter of the processor's time to place them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    shoal::cli::main()
}
