//! The pages of the manual, and the declarations in them.

pub mod errors;
pub mod sentences;

use super::support::repository;
use std::collections::BTreeMap;
use std::path::Path;

/// The families of objects.
pub const FAMILIES: [&str; 6] = ["mutex", "rwlock", "cond", "sem", "completion", "barrier"];

/// The family that a type belongs to.
pub fn family(kind: &str) -> Option<&'static str> {
    if kind == "lw_spin" {
        return Some("mutex");
    }
    let belongs =
        |family: &&str| kind == format!("lw_{family}") || kind.ends_with(&format!("_{family}"));
    FAMILIES.into_iter().find(belongs)
}

/// A function as a page or a header declares it.
#[derive(Clone, Debug)]
pub struct Prototype {
    pub result: String,
    pub name: String,
    /// Each as it is declared, with its name.
    pub parameters: Vec<String>,
}

impl Prototype {
    /// None if it is no declaration of a function.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (head, rest) = text.split_once('(')?;
        let start = head.rfind([' ', '*'])? + 1;
        let inside = rest.strip_suffix(')')?;
        Some(Self {
            result: head[..start].trim().to_owned(),
            name: head[start..].to_owned(),
            parameters: parameters(inside),
        })
    }

    /// The names of the parameters.
    pub fn arguments(&self) -> Vec<String> {
        let name = |parameter: &String| {
            let from = parameter.find("(*").map_or(parameter.as_str(), |at| {
                parameter[at + 2..].split(')').next().unwrap()
            });
            from[from.rfind([' ', '*']).map_or(0, |at| at + 1)..].to_owned()
        };
        self.parameters.iter().map(name).collect()
    }

    pub fn declared(&self) -> String {
        match self.parameters.len() {
            0 => "void".to_owned(),
            _ => self.parameters.join(", "),
        }
    }

    /// A function that calls `name` with these parameters.
    pub fn caller(&self, name: &str, number: usize) -> String {
        let (result, declared) = (&self.result, self.declared());
        let call = format!("{name}({})", self.arguments().join(", "));
        let returns = if result == "void" { "" } else { "return " };
        format!(
            "{result} caller_{number}({declared});\n{result} caller_{number}({declared}) {{ {returns}{call}; }}\n"
        )
    }

    /// Whether it is a name for all kinds, declared with a kind that has another name of its own: a macro in C.
    /// (The names of migrate.h are macros, too, or overloaded with the place of the call.)
    pub fn is_for_other_kinds(&self) -> bool {
        let first = self.parameters.first();
        let kind = first.and_then(|first| {
            let kind = first.trim_start_matches("const ").split_once("_t *")?.0;
            kind.starts_with("lw_").then(|| kind.to_owned())
        });
        kind.is_some_and(|kind| {
            family(&kind).is_some() && !self.name.starts_with(&format!("{kind}_"))
        })
    }

    /// A pointer to exactly this function.
    pub fn pointer(&self, number: usize) -> String {
        format!(
            "extern {0} (*pointer_{number})({1});\n{0} (*pointer_{number})({1}) = {2};\n",
            self.result,
            self.declared(),
            self.name
        )
    }
}

/// A list of parameters, at its commas outside of brackets.
fn parameters(inside: &str) -> Vec<String> {
    let (mut all, mut depth, mut current) = (Vec::new(), 0, String::new());
    for letter in inside.chars() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        if letter == ',' && depth == 0 {
            all.push(core::mem::take(&mut current).trim().to_owned());
        } else {
            current.push(letter);
        }
    }
    all.push(current.trim().to_owned());
    all.retain(|parameter| !parameter.is_empty() && parameter != "void");
    all
}

/// A page of the manual, by its sections, without the language that it is written in.
pub struct Page {
    pub name: String,
    pub sections: BTreeMap<String, Vec<String>>,
}

impl Page {
    pub fn read(path: &Path) -> Self {
        let mut page = Self {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            sections: BTreeMap::new(),
        };
        let mut section = String::new();
        for line in std::fs::read_to_string(path).unwrap().lines() {
            if let Some(title) = line.strip_prefix(".SH ") {
                section = title.to_owned();
            } else {
                let lines = page.sections.entry(section.clone()).or_default();
                lines.push(line.to_owned());
            }
        }
        page
    }

    pub fn section(&self, name: &str) -> &[String] {
        self.sections.get(name).map_or(&[], Vec::as_slice)
    }

    /// What the synopsis has the reader write: preprocessor lines, and statements.
    pub fn synopsis(&self) -> (String, Vec<String>) {
        let (mut preprocessor, mut text) = (String::new(), String::new());
        for line in self.section("SYNOPSIS") {
            let Some((".B" | ".BI", rest)) = line.split_once(' ') else {
                continue;
            };
            let plain = unquote(rest);
            if rest.starts_with('#') {
                // g++ defines it itself.
                let again = rest.starts_with("#define _GNU_SOURCE");
                let line = format!("{rest}\n");
                preprocessor += &match again {
                    true => format!("#ifndef _GNU_SOURCE\n{line}#endif\n"),
                    false => line,
                };
            } else {
                text += &format!("{plain} ");
            }
        }
        let statements = text.split(';').map(str::trim);
        let statements = statements.filter(|statement| !statement.is_empty());
        (preprocessor, statements.map(str::to_owned).collect())
    }

    pub fn prototypes(&self) -> Vec<Prototype> {
        let (_, statements) = self.synopsis();
        let is_function = |statement: &&String| !statement.contains('=');
        let statements = statements.iter().filter(is_function);
        statements
            .filter_map(|statement| Prototype::parse(statement))
            .collect()
    }

    /// The programs, and parts of such, between `.EX` and `.EE`.
    pub fn examples(&self) -> Vec<String> {
        let mut all = Vec::new();
        let mut current: Option<String> = None;
        for line in self.section("EXAMPLES") {
            match (line.as_str(), &mut current) {
                (".EX", _) => current = Some(String::new()),
                (".EE", _) => all.extend(current.take()),
                (line, Some(text)) => {
                    let line = line.replace("\\e", "\\").replace("\\-", "-");
                    *text += &format!("{line}\n");
                }
                _ => {}
            }
        }
        all
    }
}

/// The arguments of a macro that alternates between fonts, put together.
fn unquote(arguments: &str) -> String {
    let (mut text, mut quoted) = (String::new(), false);
    for letter in arguments.chars() {
        match letter {
            '"' => quoted = !quoted,
            ' ' if !quoted => {}
            _ => text.push(letter),
        }
    }
    text.replace("\\-", "-")
}

pub fn pages() -> Vec<Page> {
    let folder = repository().join("man");
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    // A page that is but a link to another one has no sections.
    let pages = paths.iter().filter(|path| path.extension().unwrap() == "3");
    let pages: Vec<_> = pages.map(|path| Page::read(path)).collect();
    let pages: Vec<_> = pages
        .into_iter()
        .filter(|page| !page.section("SYNOPSIS").is_empty())
        .collect();
    assert!(pages.len() >= 8, "the manual is not where it was");
    pages
}
