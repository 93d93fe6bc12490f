//! For build scripts: generates a Rust file in `OUT_DIR` from an `.x`, `.cr` or `.rpc2` file.

use std::path::{Path, PathBuf};

use crate::language::tree::Specification;
use crate::language::{Config, rust_items};
use crate::x::{self, Diagnostics, Options};

/// Settings for [`build`].
///
/// ```no_run
/// // build.rs
/// farcall_idl::Build::new().include("proto").define("RPC_HDR", "1").asynchronous().compile("proto/nfs3.x");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Build {
    options: Options,
    config: Config,
}

/// Generates `OUT_DIR/NAME.rs` from `NAME.x`, or with the features `cr` and `rpc2` from `NAME.cr` and
/// `NAME.rpc2`. Cargo runs the build script again when a file that was read changes. The path is relative to the directory of `Cargo.toml`. If
/// the file has errors, prints them in the form of compiler errors and exits with status 1.
///
/// ```no_run
/// // build.rs
/// farcall_idl::build("proto/nfs3.x");
/// ```
///
/// Include the result by `mod nfs3 { include!(concat!(env!("OUT_DIR"), "/nfs3.rs")); }`.
pub fn build(path: impl AsRef<Path>) {
    Build::new().compile(path);
}

impl Build {
    /// Returns the default settings.
    pub fn new() -> Build {
        Build::default()
    }

    /// Adds a directory that is searched for included files, or for programs that a `.cr` file depends upon.
    pub fn include(mut self, directory: impl Into<PathBuf>) -> Build {
        self.options.include_dirs.push(directory.into());
        self
    }

    /// Defines a macro of the preprocessor.
    pub fn define(mut self, name: impl Into<String>, value: impl Into<String>) -> Build {
        self.options.defines.push((name.into(), value.into()));
        self
    }

    /// Also generates the items for `async fn` servers ([`Config::asynchronous`]).
    pub fn asynchronous(mut self) -> Build {
        self.config = self.config.asynchronous();
        self
    }

    /// Admits a type that the file does not declare. Unless [`extern_type`](Build::extern_type) gives a Rust
    /// type, the type has no values.
    pub fn external(mut self, name: impl Into<String>) -> Build {
        self.options.external.push(name.into());
        self
    }

    /// Admits a type that the file does not declare, and sets its Rust type. [`Config::extern_type`] has the
    /// requirements.
    pub fn extern_type(self, name: impl Into<String>, path: impl Into<String>) -> Build {
        let name = name.into();
        let mut this = self.external(&name);
        this.config = this.config.extern_type(name, path);
        this
    }

    /// Sets the path of farcall ([`Config::farcall`]).
    pub fn farcall(mut self, path: impl Into<String>) -> Build {
        self.config = self.config.farcall(path);
        self
    }

    /// Generates the file as the function [`build`] does, with these settings.
    pub fn compile(&self, path: impl AsRef<Path>) {
        let path = path.as_ref();
        println!("cargo:rerun-if-changed={}", path.display());
        if let Err(why) = self.made(path, std::env::var_os("OUT_DIR").map(PathBuf::from)) {
            eprintln!("{why}");
            std::process::exit(1);
        }
    }

    /// Generates the file in that directory.
    fn made(&self, path: &Path, directory: Option<PathBuf>) -> Result<(), String> {
        let directory = directory.ok_or("OUT_DIR is not set: this is for build scripts")?;
        let specification = self.read(path).map_err(|why| why.to_string())?;
        specification.files.iter().for_each(|file| println!("cargo:rerun-if-changed={}", file.display()));
        for line in specification
            .warnings
            .iter()
            .flat_map(|warning| warning.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
        {
            println!("cargo:warning={line}");
        }
        let text = rust_items(&specification, &self.config, true).map_err(|why| why.to_string())?;
        let name = path.file_stem().ok_or_else(|| format!("{}: not a file", path.display()))?;
        let out = directory.join(name).with_extension("rs");
        std::fs::write(&out, text).map_err(|why| format!("{}: {why}", out.display()))
    }

    fn read(&self, path: &Path) -> Result<Specification, Diagnostics> {
        #[cfg(feature = "cr")]
        if path.extension().is_some_and(|extension| extension == "cr") {
            let include_dirs = self.options.include_dirs.clone();
            return crate::cr::read(path, &crate::cr::Options { include_dirs });
        }
        #[cfg(feature = "rpc2")]
        if crate::rpc2::is_file_name(path) {
            let Options { include_dirs, defines, .. } = self.options.clone();
            let options = crate::rpc2::Options { include_dirs, defines, ..Default::default() };
            return crate::rpc2::read(path, &options);
        }
        x::read(path, &self.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_script_gets_a_file_that_can_be_included() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().to_owned();
        std::fs::write(directory.join("calc.x"), "#include \"n.x\"\nstruct pair { int a[N]; };\n").unwrap();
        std::fs::write(directory.join("n.x"), "const N = 3;\n").unwrap();
        Build::new().made(&directory.join("calc.x"), Some(directory.clone())).unwrap();
        let text = std::fs::read_to_string(directory.join("calc.rs")).unwrap();
        assert!(text.contains("#[allow(dead_code)]\npub const N: u32 = 3;"), "{text}");
        assert!(text.contains("pub a: [i32; 3],"), "{text}");
        let why = Build::new().made(&directory.join("gone.x"), Some(directory.clone())).unwrap_err();
        assert!(why.contains("gone.x"), "{why}");
    }
}
