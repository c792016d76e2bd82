//! Compiles the few functions that must be C: see the heads of the files.

fn main() {
    println!("cargo:rerun-if-changed=include");
    println!("cargo:rerun-if-changed=src");
    let mut plain = library();
    // No exceptions: a cancelled wait finds its handler by a list, at whatever instruction it was.
    plain.flag("-fno-exceptions").files(
        [
            "wait",
            "inline",
            "classic",
            "classic_storage",
            "classic_time",
            "queue",
            "own",
        ]
        .map(|file| format!("src/{file}.c")),
    );
    compile(&plain, "latchwork_plain");
    let mut unwound = library();
    // What a program's own function throws passes through, and is cleaned up after.
    unwound.flag("-fexceptions").files(["src/once.c"]);
    compile(&unwound, "latchwork_unwound");
}

fn library() -> cc::Build {
    let mut build = cc::Build::new();
    build
        .include("include")
        .std("c11")
        .define("_GNU_SOURCE", None)
        .flag("-fasynchronous-unwind-tables")
        .warnings(true)
        .extra_warnings(true)
        .pic(true);
    // The unwinder needs no frame pointers, and the fast paths are to be as short as a caller's.
    build.opt_level(2);
    build
}

/// A check for another machine, whose compiler is not there, needs no objects.
fn compile(build: &cc::Build, name: &str) {
    let is_native = std::env::var("HOST") == std::env::var("TARGET");
    match build.try_compile(name) {
        Ok(()) => {}
        Err(error) if !is_native => println!("cargo:warning=no C objects: {error}"),
        Err(error) => panic!("{error}"),
    }
}
