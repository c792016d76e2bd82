//! The manual and the headers say the same: what a page's synopsis declares is there, with these types; a name that is
//! said to take all kinds takes them; and what a kind does not have is refused with a reason. In C and C++, by each
//! compiler that is there.

mod manual_pages;
mod support;

use latchwork as _;
use latchwork_c as _;
use manual_pages::errors::{NOT_PROVOKED, citations};
use manual_pages::sentences::{SHOWN, names_of_files, not_shown, sayings};
use manual_pages::{Prototype, family, pages};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use support::{How, by, compiler, scratch};

const HOWS: [How; 6] = [
    by("gcc", &["-std=c11"]),
    by("clang", &["-std=c11"]),
    by("gcc", &["-std=gnu2x"]),
    by("g++", &["-std=c++17"]),
    by("clang++", &["-std=c++17"]),
    by("g++", &["-std=c++20"]),
];

/// The words that a page's placeholders stand for, where a constant is wanted.
const CONSTANTS: &str = "enum { count = 1, tasks = 2, ceiling = 3 };\n";

/// What a compiler says of a text: nothing if it takes it.
fn verdict(how: How, name: &str, text: &str) -> Result<(), String> {
    let file = scratch().join(format!("{name}-{}.c", how.compiler));
    std::fs::write(&file, text).unwrap();
    let mut command = compiler(how);
    // All that is wrong, however much it is.
    let all = if how.compiler.starts_with("clang") {
        "-ferror-limit=0"
    } else {
        "-fmax-errors=0"
    };
    let output = command.args(["-fsyntax-only", all]).arg(&file);
    let output = output.output().unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[track_caller]
fn takes(how: How, name: &str, text: &str) {
    if let Err(said) = verdict(how, name, text) {
        panic!("{} {:?} refuses {name}: {said}", how.compiler, how.flags);
    }
}

fn compilers() -> impl Iterator<Item = How> {
    HOWS.into_iter().filter(How::is_there)
}

#[test]
fn each_line_of_a_synopsis_compiles() {
    for page in pages() {
        let (mut text, statements) = page.synopsis();
        text += CONSTANTS;
        let mut functions = 0;
        for (number, statement) in statements.iter().enumerate() {
            let placed = |from: &str, to: &str| statement.replacen(from, to, 1);
            if statement.contains('=') {
                // A definition, with its initialiser; several lines may define the same name.
                let (declared, value) = statement.split_once('=').unwrap();
                let (kind, _) = declared.trim().rsplit_once(' ').unwrap();
                writeln!(text, "extern {kind} object_{number};").unwrap();
                writeln!(text, "{kind} object_{number} ={value};").unwrap();
            } else if statement.starts_with("INIT_COMPLETION") {
                // Of the object itself, as in Linux.
                writeln!(
                    text,
                    "void use_{number}(struct completion *it);\nvoid use_{number}(struct completion *it) {{ {}; }}",
                    placed("done", "*it")
                )
                .unwrap();
            } else if let Some(prototype) = Prototype::parse(statement) {
                text += &prototype.caller(&prototype.name, number);
                if page.name != "lw_migrate" && !prototype.is_for_other_kinds() {
                    text += &prototype.pointer(number);
                }
                functions += 1;
            } else {
                // A macro that defines an object.
                writeln!(text, "{};", placed("name", &format!("object_{number}"))).unwrap();
            }
        }
        let is_of_classes = text.contains(".hpp>");
        assert!(
            functions > 0 || is_of_classes,
            "{} declares no function",
            page.name
        );
        for how in compilers().filter(|how| how.is_cpp() || !is_of_classes) {
            takes(how, &page.name, &text);
        }
    }
}

#[test]
fn each_example_of_the_manual_compiles() {
    let mut examples = 0;
    for page in pages() {
        let (preprocessor, _) = page.synopsis();
        for (number, example) in page.examples().iter().enumerate() {
            let text = format!(
                "{preprocessor}#include <stdio.h>\n#include <string.h>\n#include <sys/wait.h>\n{example}"
            );
            for how in compilers() {
                let name = format!("{}-example-{number}", page.name);
                // An example of C is not always one of C++: pointers to void convert by themselves.
                if how.is_cpp() == preprocessor.contains(".hpp>") {
                    takes(how, &name, &text);
                }
            }
            examples += 1;
        }
    }
    assert!(examples >= 4, "the manual has {examples} examples");
}

/// What stands first on a page is declared on it, or, of RTEMS's names, by the header; or is the page itself.
#[test]
fn each_name_that_a_page_begins_with_is_declared() {
    for page in pages() {
        let (preprocessor, _) = page.synopsis();
        let prototypes = page.prototypes();
        let names = page.section("NAME").join(" ");
        let (names, _) = names.split_once("\\-").unwrap();
        for name in names.split(',').map(str::trim) {
            if name == page.name || prototypes.iter().any(|prototype| prototype.name == name) {
                continue;
            }
            assert_eq!(
                page.name, "lw_classic",
                "{name} is not declared on its page"
            );
            for how in compilers() {
                let text =
                    format!("{preprocessor}void use(void);\nvoid use(void) {{ (void)&{name}; }}\n");
                takes(how, name, &text);
            }
        }
    }
}

/// What each kind of an object can do: by family and operation, and by kind, how that kind's function is declared.
type Operations = BTreeMap<(String, String), BTreeMap<String, Prototype>>;

/// All that the headers declare, without the names for all kinds.
fn operations(how: How) -> Operations {
    // Several tests may write it at the same time.
    let test = std::thread::current();
    let file = scratch().join(format!("all-{}.c", test.name().unwrap()));
    std::fs::write(&file, "#define LW_NO_GENERIC\n#include \"latchwork.h\"\n").unwrap();
    let mut command = compiler(how);
    let output = command.args(["-E", "-P"]).arg(&file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut operations = Operations::new();
    for statement in text.split([';', '{', '}']) {
        let Some(prototype) = statement
            .rfind("int lw_")
            .and_then(|at| Prototype::parse(statement[at..].trim()))
        else {
            continue;
        };
        let Some(kind) = prototype.parameters.first().and_then(|first| {
            let name = first.trim_start_matches("const ").split_once(" *")?.0;
            name.strip_suffix("_t").map(str::to_owned)
        }) else {
            continue;
        };
        let operation = prototype.name.strip_prefix(&format!("{kind}_"));
        if let (Some(family), Some(operation)) = (family(&kind), operation) {
            let key = (family.to_owned(), operation.to_owned());
            operations.entry(key).or_default().insert(kind, prototype);
        }
    }
    assert!(operations.len() > 30, "{operations:?}");
    operations
}

/// The kinds of a family.
fn kinds<'a>(operations: &'a Operations, family: &str) -> BTreeSet<&'a str> {
    let of_family = operations.iter().filter(|((of, _), _)| of == family);
    of_family
        .flat_map(|(_, kinds)| kinds.keys().map(String::as_str))
        .collect()
}

/// The parameters of a wait, with a mutex of this kind instead of `lw_mutex_t`.
fn with_mutex(prototype: &Prototype, kind: &str) -> Prototype {
    let mut prototype = prototype.clone();
    for parameter in &mut prototype.parameters {
        *parameter = parameter.replace("lw_mutex_t *", &format!("{kind}_t *"));
    }
    prototype
}

#[test]
fn a_generic_name_accepts_each_kind_that_has_the_function() {
    for how in compilers() {
        let operations = operations(how);
        let mut text = "#include <latchwork.h>\n".to_owned();
        let mut number = 0;
        for ((family, operation), kinds_of_it) in &operations {
            for prototype in kinds_of_it.values() {
                text += &prototype.caller(&format!("lw_{family}_{operation}"), number);
                number += 1;
                // Who only looks is given what may be changed, too.
                if prototype.parameters[0].starts_with("const ") {
                    let mut changeable = prototype.clone();
                    changeable.parameters[0] = changeable.parameters[0].replace("const ", "");
                    text += &changeable.caller(&format!("lw_{family}_{operation}"), number);
                    number += 1;
                }
            }
        }
        // Waits: each kind of condition variable with each kind of mutex.
        for operation in ["wait", "timedwait", "clockwait"] {
            let plain = &operations[&("cond".to_owned(), operation.to_owned())]["lw_cond"];
            for cond in kinds(&operations, "cond") {
                for mutex in kinds(&operations, "mutex") {
                    if mutex == "lw_spin" {
                        continue;
                    }
                    let mut prototype = with_mutex(plain, mutex);
                    prototype.parameters[0] = format!("{cond}_t *cond");
                    text += &prototype.caller(&format!("lw_cond_{operation}"), number);
                    number += 1;
                }
            }
        }
        assert!(number > 300, "{number}");
        takes(how, "kinds", &text);
    }
}

/// Each type that a page names belongs to what its sentence "the names above take ..." speaks of.
#[test]
fn a_page_names_each_function_and_each_type_of_its_family() {
    let Some(how) = compilers().find(|how| !how.is_cpp()) else {
        return;
    };
    let operations = operations(how);
    let homes = [
        ("mutex", "lw_mutex"),
        ("rwlock", "lw_rwlock"),
        ("cond", "lw_cond"),
        ("sem", "lw_sem"),
        ("completion", "lw_sem"),
        ("barrier", "lw_sem"),
    ];
    let pages = pages();
    for (family, home) in homes {
        let page = pages.iter().find(|page| page.name == home).unwrap();
        let all = page.sections.values().flatten().cloned();
        let body = all.collect::<Vec<_>>().join("\n");
        let named = |name: &str| body.contains(name);
        for kind in kinds(&operations, family) {
            assert!(named(&format!("{kind}_t")), "{home} does not name {kind}_t");
        }
        for (_, operation) in operations.keys().filter(|(of, _)| of == family) {
            let name = format!("lw_{family}_{operation}");
            assert!(named(&name), "{home} does not name {name}");
        }
    }
}

/// What no compiler takes: a declaration of parameters, a call, and in C the reason. (C++ names the function.)
const NONE_AT_ALL: [(&str, &str, &str); 8] = [
    ("lw_sem_t *it", "lw_mutex_lock(it)", "a mutex"),
    ("const lw_tp_mutex_t *it", "lw_mutex_init(it)", "a mutex"),
    (
        "lw_mutex_t *it",
        "lw_rwlock_rdlock(it)",
        "a reader/writer lock",
    ),
    ("lw_mutex_t *it", "lw_sem_post(it)", "a semaphore"),
    ("lw_mutex_t *it", "lw_completion_reset(it)", "a completion"),
    ("lw_mutex_t *it", "lw_barrier_wait(it)", "a barrier"),
    ("lw_sem_t *it", "lw_cond_signal(it)", "a condition variable"),
    (
        "lw_cond_t *cond, lw_spin_t *it",
        "lw_cond_wait(cond, it)",
        "a mutex that is no spinlock",
    ),
];

#[test]
fn a_generic_name_refuses_a_kind_without_the_operation() {
    for how in compilers() {
        let operations = operations(how);
        // Each in a line of its own, with what is to be said of it.
        let mut text = "#include <latchwork.h>\n".to_owned();
        let mut reasons = Vec::new();
        let mut add = |prototype: &str, call: &str, reason: String| {
            let name = call.split('(').next().unwrap();
            let number = reasons.len();
            writeln!(
                text,
                "static inline int use_{number}({prototype}) {{ return {call}; }}"
            )
            .unwrap();
            let by_name = format!("{name}() takes a pointer to {reason}");
            reasons.push(if how.is_cpp() {
                name.to_owned()
            } else {
                by_name
            });
        };
        for ((family, operation), kinds_of_it) in &operations {
            let lacking = kinds(&operations, family).into_iter();
            for other in lacking.filter(|kind| !kinds_of_it.contains_key(*kind)) {
                // The waits of condition variables are named by the plain kind alone.
                if family == "cond" && operation.contains("wait") {
                    continue;
                }
                let mut prototype = kinds_of_it.values().next().unwrap().clone();
                prototype.parameters[0] = format!("{other}_t *it");
                let arguments = prototype.arguments().join(", ");
                let call = format!("lw_{family}_{operation}({arguments})");
                add(&prototype.declared(), &call, String::new());
            }
        }
        for (declared, call, reason) in NONE_AT_ALL {
            add(declared, call, reason.to_owned());
        }
        assert!(reasons.len() > 60, "{}", reasons.len());
        let said = verdict(how, "lacks", &text).expect_err("nothing is refused");
        for (index, reason) in reasons.iter().enumerate() {
            let place = format!("lacks-{}.c:{}:", how.compiler, index + 2);
            for part in [&place, reason] {
                assert!(
                    said.contains(part),
                    "{} does not say {part}: {said}",
                    how.compiler
                );
            }
        }
    }
}

/// Each reason in a section ERRORS is provoked by a program, which cites it, or is listed as one that is not.
#[test]
fn each_error_of_a_page_is_provoked() {
    let reasons: Vec<_> = pages().iter().flat_map(|page| page.reasons()).collect();
    assert!(reasons.len() > 80, "{}", reasons.len());
    let mut faults = Vec::new();
    let citations = citations();
    for citation in &citations {
        let is_of = reasons.iter().any(|reason| {
            reason.page == citation.page
                && reason.errors.contains(&citation.error)
                && reason.text.contains(&citation.quote)
        });
        if !is_of {
            faults.push(format!("{}: the page does not say so", citation.place));
        }
        if !citation.is_checked {
            faults.push(format!("{}: no check for it follows", citation.place));
        }
    }
    for reason in &reasons {
        for error in &reason.errors {
            let is_cited = citations.iter().any(|citation| {
                (&citation.page, &citation.error) == (&reason.page, error)
                    && reason.text.contains(&citation.quote)
            });
            let is_listed = NOT_PROVOKED.iter().any(|(page, errors, quote)| {
                *page == reason.page
                    && errors.split(' ').any(|listed| listed == error)
                    && reason.text.contains(quote)
            });
            if is_cited == is_listed {
                let what = if is_cited {
                    "is cited, and listed"
                } else {
                    "is not cited"
                };
                faults.push(format!("{} {error} {what}: {}", reason.page, reason.text));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Each sentence of a page's description is shown by a program, which cites it, or is listed as one that is not.
#[test]
fn each_sentence_of_a_page_is_shown() {
    let mut faults = Vec::new();
    let (sayings, files) = (sayings(), names_of_files());
    for page in pages().iter().filter(|page| SHOWN.contains(&&*page.name)) {
        let sentences = page.sentences();
        assert!(sentences.len() > 10, "{}", sentences.len());
        let of_page = || sayings.iter().filter(|saying| saying.page == page.name);
        for saying in of_page() {
            if !sentences.iter().any(|text| text.contains(&saying.words)) {
                faults.push(format!("{}: the page does not say so", saying.place));
            }
            if !saying.is_checked {
                faults.push(format!("{}: no check for it follows", saying.place));
            }
        }
        for listed in not_shown().filter(|listed| listed.page == page.name) {
            if !sentences.iter().any(|text| text.contains(listed.words)) {
                faults.push(format!("{}: not on the page: {}", page.name, listed.words));
            }
            for missing in listed.files().filter(|file| !files.contains(*file)) {
                faults.push(format!(
                    "{}: {}: no file {missing}",
                    page.name, listed.words
                ));
            }
        }
        for text in &sentences {
            let is_shown = of_page().any(|saying| text.contains(&saying.words));
            let mut listed = not_shown().filter(|listed| listed.page == page.name);
            let is_listed = listed.any(|listed| text.contains(listed.words));
            // What introduces a list says nothing of its own.
            let needs_none = text.ends_with(':');
            if is_shown == is_listed && (is_shown || !needs_none) {
                let what = if is_shown {
                    "is shown, and listed"
                } else {
                    "is not shown"
                };
                faults.push(format!("{}: {what}: {text}", page.name));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
