//! What the packages of a release are made of: the metadata of each public crate, the files in its package, and the
//! agreement of the versions. `ci/release.sh` builds the packages themselves; these rules need no network.
//!
//! A rule that nobody has seen fail proves nothing: each has a test in which a planted fault breaks it.

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use syn::visit::{self, Visit};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn cargo(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    let output = command.args(arguments).current_dir(root()).output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The crates of the workspace, as Cargo reads their manifests.
fn crates() -> Vec<Value> {
    let arguments = [
        "metadata",
        "--no-deps",
        "--offline",
        "--format-version",
        "1",
    ];
    let metadata: Value = serde_json::from_str(&cargo(&arguments)).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}

fn texts<'a>(value: &'a Value, key: &str) -> Vec<&'a str> {
    let list = value[key].as_array();
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn is_public(package: &Value) -> bool {
    package["publish"].is_null()
}

/// What crates.io accepts as categories, as far as it concerns these crates.
const CATEGORIES: [&str; 8] = [
    "api-bindings",
    "command-line-utilities",
    "concurrency",
    "development-tools::debugging",
    "development-tools::procedural-macro-helpers",
    "development-tools::profiling",
    "development-tools::testing",
    "memory-management",
];

/// What is missing from the manifest of a public crate.
fn manifest_faults(package: &Value, all: &[Value]) -> Vec<String> {
    let mut faults = Vec::new();
    let name = text(package, "name");
    let mut fault = |is_fault: bool, what: String| {
        if is_fault {
            faults.push(format!("{name}: {what}"));
        }
    };
    for key in ["description", "license", "repository", "rust_version"] {
        fault(text(package, key).is_empty(), format!("no {key}"));
    }
    let folder = Path::new(text(package, "manifest_path")).parent().unwrap();
    let page = text(package, "readme");
    let has_page = !page.is_empty() && folder.join(page).is_file();
    fault(!has_page, "no page (readme)".into());
    let keywords = texts(package, "keywords");
    fault(
        keywords.is_empty() || keywords.len() > 5,
        "1 to 5 keywords".into(),
    );
    for word in keywords {
        let is_good = word.len() <= 20
            && word.starts_with(|c: char| c.is_ascii_alphanumeric())
            && word
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-+".contains(c));
        fault(!is_good, format!("keyword {word}"));
    }
    let categories = texts(package, "categories");
    fault(
        categories.is_empty() || categories.len() > 5,
        "1 to 5 categories".into(),
    );
    for category in categories {
        let is_known = CATEGORIES.contains(&category) || category == "os::linux-apis";
        fault(!is_known, format!("category {category}"));
    }
    let exactly = format!("={}", text(package, "version"));
    for dependency in package["dependencies"].as_array().unwrap() {
        let other = text(dependency, "name");
        let Some(other) = all.iter().find(|package| text(package, "name") == other) else {
            fault(
                text(dependency, "req") == "*",
                format!("any version of {other}"),
            );
            continue;
        };
        let other_name = text(other, "name");
        let version = text(dependency, "req");
        if text(dependency, "kind") == "dev" {
            // Cargo leaves out a dependency without a version, so it may be published later, or never.
            fault(
                version != "*" && !is_public(other),
                format!("tests need a version of {other_name}"),
            );
        } else {
            fault(
                !is_public(other),
                format!("needs {other_name}, which is not published"),
            );
            fault(
                version != exactly,
                format!("{other_name} {version}, not {exactly}"),
            );
        }
    }
    faults
}

#[test]
fn each_public_crate_has_what_a_registry_and_a_reader_need() {
    let all = crates();
    let public: Vec<_> = all.iter().filter(|package| is_public(package)).collect();
    let has = |name: &str| public.iter().any(|package| text(package, "name") == name);
    assert!(has("latchwork") && has("latchwork-cli") && has("latchwork-c"));
    assert!(!has("latchwork-testkit") && !has("latchwork-examples"));
    let faults = |package: &Value| manifest_faults(package, &all);
    let found: Vec<_> = public.iter().flat_map(|package| faults(package)).collect();
    assert!(found.is_empty(), "{found:#?}");

    let name = |package: &&&Value| text(package, "name") == "latchwork-sync";
    let sound = (**public.iter().find(name).unwrap()).clone();
    for (key, value, expected) in [
        ("description", Value::Null, "no description"),
        ("license", json!(""), "no license"),
        ("readme", json!("NONE.md"), "no page"),
        ("keywords", json!([]), "1 to 5 keywords"),
        ("keywords", json!(["two words"]), "keyword two words"),
        ("categories", json!(["locks"]), "category locks"),
        ("version", json!("0.2.0"), "not =0.2.0"),
        (
            "dependencies",
            json!([{"name": "latchwork-testkit", "req": "*", "kind": null}]),
            "which is not published",
        ),
        (
            "dependencies",
            json!([{"name": "libc", "req": "*", "kind": null}]),
            "any version",
        ),
    ] {
        let mut planted = sound.clone();
        planted[key] = value;
        let found = faults(&planted);
        let is_found = found.iter().any(|fault| fault.contains(expected));
        assert!(is_found, "{key}: {found:?}");
    }
}

/// The files that the code of a library or program contains (`include_str!`, `include_bytes!`), and whether it contains
/// the path of its directory, which another machine does not have. Tests are left out.
#[derive(Default)]
struct Included {
    files: Vec<String>,
    names_directory: bool,
    /// The modules in files of their own that are tests.
    test_modules: Vec<String>,
}

fn is_test(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    let condition = list.tokens.to_string();
    let tests = ["test", "doctest", "all (test", "all(test"];
    list.path.is_ident("cfg")
        && tests
            .iter()
            .any(|test| condition == *test || test.contains('(') && condition.starts_with(test))
}

impl<'ast> Visit<'ast> for Included {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Const(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !attributes.iter().any(is_test) {
            visit::visit_item(self, item);
        } else if let syn::Item::Mod(module) = item {
            self.test_modules.push(module.ident.to_string());
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().unwrap().ident.to_string();
        let argument = call.tokens.to_string();
        match &*name {
            "include_str" | "include_bytes" | "include" => {
                let file = argument.trim_matches('"').to_owned();
                self.files.push(file);
            }
            "env" | "option_env" => {
                self.names_directory |= argument.contains("CARGO_MANIFEST_DIR");
            }
            // The arguments of other macros are code, too.
            _ => {
                self.names_directory |= argument.contains("CARGO_MANIFEST_DIR");
            }
        }
    }
}

/// A file `from` and a path relative to it, without `..`.
fn beside(from: &str, file: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// What a package with these files lacks. `read` returns the text of a file in it.
fn package_faults(files: &[String], read: &dyn Fn(&str) -> String) -> Vec<String> {
    let has = |name: &str| files.iter().any(|file| file == name);
    let mut faults: Vec<String> = ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"]
        .into_iter()
        .filter(|name| !has(name))
        .map(|name| format!("no {name}"))
        .collect();
    if !has("src/lib.rs") && !has("src/main.rs") {
        faults.push("no src".into());
    }
    let is_code = |file: &&String| file.starts_with("src/") && file.ends_with(".rs");
    let mut code = Vec::new();
    let mut tests = Vec::new();
    for file in files.iter().filter(is_code) {
        let mut found = Included::default();
        found.visit_file(&syn::parse_file(&read(file)).unwrap());
        // The modules of `a/mod.rs` and of `a.rs` are files in `a`.
        let folder = file.trim_end_matches(".rs");
        let folder = ["mod", "lib", "main"]
            .iter()
            .find_map(|root| folder.strip_suffix(&format!("/{root}")))
            .unwrap_or(folder);
        tests.extend(
            found
                .test_modules
                .iter()
                .map(|name| format!("{folder}/{name}")),
        );
        code.push((file, found));
    }
    let is_test = |file: &str| {
        let below = |test: &String| file.strip_prefix(test.as_str());
        tests
            .iter()
            .filter_map(below)
            .any(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    for (file, found) in code.into_iter().filter(|(file, _)| !is_test(file)) {
        if found.names_directory {
            faults.push(format!("{file} names the directory of its sources"));
        }
        for included in found.files {
            // A path that a macro makes is not checked: the package is built by ci/release.sh.
            if included.contains('(') {
                continue;
            }
            if !beside(file, &included).is_some_and(|file| has(&file)) {
                faults.push(format!("{file} includes {included}"));
            }
        }
    }
    faults
}

#[test]
fn each_package_contains_what_it_is_built_from() {
    for package in crates().iter().filter(|package| is_public(package)) {
        let name = text(package, "name");
        let arguments = [
            "package",
            "--list",
            "--allow-dirty",
            "--offline",
            "-p",
            name,
        ];
        let listed = cargo(&arguments);
        let files: Vec<String> = listed.lines().map(str::to_owned).collect();
        let folder = Path::new(text(package, "manifest_path")).parent().unwrap();
        let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
        let found = package_faults(&files, &read);
        assert!(found.is_empty(), "{name}: {found:#?}");
        assert!(!files.iter().any(|file| file.starts_with("tests/")));
        let is_built = folder.join("build.rs").exists();
        assert_eq!(files.iter().any(|file| file == "build.rs"), is_built);
        if name == "latchwork-c" {
            for header in ["include/latchwork.h", "include/latchwork/mutex.h"] {
                assert!(files.iter().any(|file| file == header), "{header}");
            }
        }
    }
    let planted = ["Cargo.toml", "LICENSE-MIT", "src/lib.rs", "src/a/b.rs"].map(String::from);
    let read = |file: &str| {
        match file {
        "src/lib.rs" => "const A: &str = include_str!(\"a/b.rs\"); fn f() { g(env!(\"CARGO_MANIFEST_DIR\")) }".to_owned(),
        _ => "const A: &str = include_str!(\"../../../b.md\"); #[cfg(test)] mod t { const B: &str = include_str!(\"no\"); }"
            .to_owned(),
    }
    };
    let expected = [
        "no README.md",
        "no LICENSE-APACHE",
        "src/lib.rs names the directory of its sources",
        "src/a/b.rs includes ../../../b.md",
    ];
    assert_eq!(package_faults(&planted, &read), expected);
}

/// What the documents and packages of Debian say is the version of the workspace.
#[test]
fn all_packages_have_the_version_of_the_workspace() {
    let version = crates()
        .iter()
        .find(|package| text(package, "name") == "latchwork")
        .map(|package| text(package, "version").to_owned())
        .unwrap();
    for package in crates().iter().filter(|package| is_public(package)) {
        assert_eq!(text(package, "version"), version);
    }
    let debian = root().join("install/debian");
    let changelog = fs::read_to_string(debian.join("changelog")).unwrap();
    let first = changelog.lines().next().unwrap();
    assert!(
        first.starts_with(&format!("latchwork ({version}-")),
        "{first}"
    );
    // The name of a shared library's package is that of its soname.
    let (interface, _) = version.rsplit_once('.').unwrap();
    let package = format!("liblatchwork{interface}");
    let control = fs::read_to_string(debian.join("control")).unwrap();
    assert!(control.contains(&format!("\nPackage: {package}\n")));
    assert!(debian.join(format!("{package}.install")).exists());
    let changes = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let is_known = changes.contains(&format!("\n## {version}"));
    assert!(is_known, "CHANGELOG.md has no section for {version}");
}
