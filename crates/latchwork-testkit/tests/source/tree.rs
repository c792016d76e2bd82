//! The source files of the workspace, and the modules of a crate with what each defines and imports.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Item, ItemMod, ItemUse, Lit, Macro, Meta, Token, UseTree,
    punctuated::Punctuated,
    visit::{self, Visit},
};

/// A path as it is written.
#[derive(Debug, Clone)]
pub struct Named {
    pub segments: Vec<String>,
    pub line: usize,
}

/// One `use` of one name.
#[derive(Debug, Clone)]
pub struct Use {
    pub path: Named,
    /// The name by which the module knows it; `*` for all names.
    pub alias: String,
    /// Whether it is a re-export (`pub use` in any form).
    pub is_public: bool,
}

/// What one file says of one module. A module has several when `cfg_attr` chooses between files.
#[derive(Debug, Default)]
pub struct Part {
    pub file: PathBuf,
    /// The names of items that are defined here, child modules excepted.
    pub items: Vec<String>,
    pub uses: Vec<Use>,
    /// All other paths.
    pub paths: Vec<Named>,
    /// The macros that are called.
    pub calls: Vec<Named>,
}

/// The modules of a crate by path; the root's path is empty.
#[derive(Debug, Default)]
pub struct Modules {
    pub parts: BTreeMap<Vec<String>, Vec<Part>>,
    /// The files that define each `macro_rules!`.
    pub macros: BTreeMap<String, Vec<PathBuf>>,
}

/// How a file is read: from the disk, or, in a test, from a planted source.
pub type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

pub fn from_disk(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok()
}

impl Modules {
    /// The modules below `root`, a crate's `lib.rs` or `main.rs`. All configurations are read at once: `cfg` is not
    /// evaluated, except that unit tests (`cfg(test)`) are left out.
    ///
    /// # Panics
    /// If a file is missing or no Rust.
    pub fn read(root: &Path, read: Read<'_>) -> Self {
        let mut modules = Self::default();
        modules.add_file(Vec::new(), root, root.parent().unwrap(), read);
        modules
    }

    fn add_file(&mut self, module: Vec<String>, file: &Path, children: &Path, read: Read<'_>) {
        let text = read(file).unwrap_or_else(|| panic!("{} cannot be read", file.display()));
        let syntax =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.add(module, &syntax.items, file, children, read);
    }

    fn add(
        &mut self,
        module: Vec<String>,
        items: &[Item],
        file: &Path,
        children: &Path,
        read: Read<'_>,
    ) {
        let mut part = Part {
            file: file.to_owned(),
            ..Part::default()
        };
        for item in items {
            if is_test(attributes(item)) {
                continue;
            }
            if let Item::Mod(inner) = item {
                self.add_child(&module, inner, file, children, read);
                continue;
            }
            if let Item::Macro(rules) = item
                && let Some(name) = &rules.ident
            {
                self.macros
                    .entry(name.to_string())
                    .or_default()
                    .push(file.to_owned());
            }
            if let Some(name) = name(item) {
                part.items.push(name);
            }
            Collector(&mut part).visit_item(item);
        }
        self.parts.entry(module).or_default().push(part);
    }

    fn add_child(
        &mut self,
        parent: &[String],
        module: &ItemMod,
        file: &Path,
        children: &Path,
        read: Read<'_>,
    ) {
        let name = module.ident.to_string();
        let path: Vec<String> = parent.iter().cloned().chain([name.clone()]).collect();
        let below = children.join(&name);
        if let Some((_, items)) = &module.content {
            return self.add(path, items, file, &below, read);
        }
        let named = paths_of(&module.attrs);
        for given in &named {
            let file = file.parent().unwrap().join(given);
            let children = if file.ends_with("mod.rs") {
                file.parent().unwrap().to_owned()
            } else {
                below.clone()
            };
            self.add_file(path.clone(), &file, &children, read);
        }
        // An unconditional `path` replaces the usual place, a conditional one adds to it.
        if module
            .attrs
            .iter()
            .any(|attribute| attribute.path().is_ident("path"))
        {
            return;
        }
        let file = [children.join(format!("{name}.rs")), below.join("mod.rs")];
        let file = file.iter().find(|file| read(file).is_some());
        match file {
            Some(file) => self.add_file(path, file, &below, read),
            None => assert!(!named.is_empty(), "no file for the module {path:?}"),
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, Meta::List(list) if idents(list.tokens.clone()).starts_with(&["test".into()])
                || idents(list.tokens.clone()).starts_with(&["all".into(), "test".into()]))
    })
}

fn idents(tokens: TokenStream) -> Vec<String> {
    tokens
        .into_iter()
        .flat_map(|token| match token {
            TokenTree::Ident(name) => vec![name.to_string()],
            TokenTree::Group(group) => idents(group.stream()),
            _ => Vec::new(),
        })
        .collect()
}

/// The files of `#[path = …]` and `#[cfg_attr(…, path = …)]`.
fn paths_of(attributes: &[Attribute]) -> Vec<String> {
    let value = |meta: &Meta| match meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit {
                lit: Lit::Str(text),
                ..
            }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    };
    let mut found = Vec::new();
    for attribute in attributes {
        found.extend(value(&attribute.meta));
        if attribute.path().is_ident("cfg_attr")
            && let Ok(parts) =
                attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
        {
            found.extend(parts.iter().filter_map(value));
        }
    }
    found
}

fn name(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        _ => return None,
    })
}

/// Takes from an item the paths that it names.
struct Collector<'a>(&'a mut Part);

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        flatten(&item.tree, &mut Vec::new(), &mut |segments, alias, line| {
            self.0.uses.push(Use {
                path: Named { segments, line },
                alias,
                is_public,
            });
        });
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.paths.push(named(path));
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.0.calls.push(named(&call.path));
        in_tokens(call.tokens.clone(), self.0);
    }

    // Neither names anything that the compiler would need.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn flatten(
    tree: &UseTree,
    before: &mut Vec<String>,
    found: &mut impl FnMut(Vec<String>, String, usize),
) {
    let line = |name: &syn::Ident| name.span().start().line;
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, found);
            before.pop();
        }
        UseTree::Group(group) => group
            .items
            .iter()
            .for_each(|tree| flatten(tree, before, found)),
        UseTree::Name(name) if name.ident == "self" => found(
            before.clone(),
            before.last().cloned().unwrap(),
            line(&name.ident),
        ),
        UseTree::Name(name) => {
            found(
                before
                    .iter()
                    .cloned()
                    .chain([name.ident.to_string()])
                    .collect(),
                name.ident.to_string(),
                line(&name.ident),
            );
        }
        UseTree::Rename(name) => {
            let mut path = before.clone();
            if name.ident != "self" {
                path.push(name.ident.to_string());
            }
            found(path, name.rename.to_string(), line(&name.ident));
        }
        UseTree::Glob(star) => found(
            before.clone(),
            "*".into(),
            star.star_token.spans[0].start().line,
        ),
    }
}

fn named(path: &syn::Path) -> Named {
    Named {
        segments: path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect(),
        line: path
            .segments
            .first()
            .map_or(0, |segment| segment.ident.span().start().line),
    }
}

/// The paths in the arguments of a macro, or in its definition: names with `::` between them. Before `!` and a group, a
/// path is a call.
fn in_tokens(tokens: TokenStream, part: &mut Part) {
    let mut path: Option<Named> = None;
    let mut signs = String::new();
    for token in tokens {
        match token {
            TokenTree::Punct(sign) => signs.push(sign.as_char()),
            TokenTree::Ident(name) => {
                match &mut path {
                    Some(path) if signs == "::" => path.segments.push(name.to_string()),
                    path => {
                        part.paths.extend(path.take());
                        *path = Some(Named {
                            segments: vec![name.to_string()],
                            line: name.span().start().line,
                        });
                    }
                }
                signs.clear();
            }
            TokenTree::Group(group) => {
                let list = if signs == "!" {
                    &mut part.calls
                } else {
                    &mut part.paths
                };
                list.extend(path.take());
                signs.clear();
                in_tokens(group.stream(), part);
            }
            TokenTree::Literal(_) => signs.clear(),
        }
    }
    part.paths.extend(path);
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}
