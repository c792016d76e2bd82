//! The command's manual page, `man/latchwork.1`, generated from the definitions that the command itself uses.
//!
//! `LATCHWORK_WRITE_MANUAL=1 cargo test -p latchwork-cli manual` writes it.

use crate::Cli;
use crate::status::RULE;
use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;
use std::fmt::Write;

/// A section without its heading.
fn body(render: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut bytes = Vec::new();
    render(&mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with(".SH"));
    lines
        .skip(1)
        .fold(String::new(), |text, line| text + line + "\n")
}

/// The verbs that `--help` shows, except `help` itself.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    let verbs = command.get_subcommands();
    verbs.filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

/// Marks the positional arguments that take several values by an ellipsis, as `--help` does.
fn with_ellipses(verb: &Command, text: &str) -> String {
    let several = |argument: &&Arg| {
        let number = argument.get_num_args();
        number.is_some_and(|number| number.max_values() > 1)
    };
    let names = verb.get_positionals().filter(several);
    let names = names.filter_map(|argument| argument.get_value_names()?.first());
    names.fold(text.to_owned(), |text, name| {
        let optional = format!("[\\fI{name}\\fR]");
        let required = format!("<\\fI{name}\\fR>");
        text.replace(&optional, &format!("{optional}..."))
            .replace(&required, &format!("{required}..."))
    })
}

/// A verb's synopsis, description and options, and the verbs below it.
fn describe(verb: &Command, heading: &str, to: &mut String) {
    let page = Man::new(verb.clone());
    let path = verb.get_bin_name().unwrap_or(verb.get_name());
    let title = match heading {
        ".SH" => path.to_uppercase(),
        _ => path.to_owned(),
    };
    writeln!(to, "{heading} \"{title}\"").unwrap();
    *to += &with_ellipses(verb, &body(|to| page.render_synopsis_section(to)));
    *to += ".PP\n";
    *to += &body(|to| page.render_description_section(to));
    if verb.get_arguments().next().is_some() {
        *to += &with_ellipses(verb, &body(|to| page.render_options_section(to)));
    }
    for below in shown(verb) {
        describe(below, ".SS", to);
    }
}

fn page() -> String {
    let mut command = Cli::command();
    command.build();
    let version = env!("CARGO_PKG_VERSION");
    let version = version.rsplit_once('.').map_or(version, |(short, _)| short);
    let man = Man::new(command.clone())
        .title("latchwork")
        .section("1")
        .date("")
        .source(format!("Latchwork {version}"))
        .manual("Latchwork Manual");
    let mut bytes = Vec::new();
    man.render_title(&mut bytes).unwrap();
    man.render_name_section(&mut bytes).unwrap();
    man.render_synopsis_section(&mut bytes).unwrap();
    let mut page = String::from_utf8(bytes).unwrap();
    page += ".SH DESCRIPTION\n";
    page += &body(|to| man.render_description_section(to));
    for verb in shown(&command) {
        describe(verb, ".SH", &mut page);
    }
    page += ".SH \"EXIT STATUS\"\n";
    for line in RULE.lines().skip(1) {
        let line = line.replace('-', "\\-");
        match line
            .strip_prefix("  ")
            .and_then(|line| line.split_once("  "))
        {
            Some((status, meaning)) => write!(page, ".TP\n.B {status}\n{meaning}\n").unwrap(),
            None => write!(page, ".PP\n{line}\n").unwrap(),
        }
    }
    page += ".SH \"SEE ALSO\"\n.BR lw_mutex (3),\n.BR lw_rwlock (3),\n.BR lw_cond (3),\n.BR lw_sem (3),\n\
             .BR lw_queue (3),\n.BR lw_region (3),\n.BR lw_classic (3),\n.BR coproc (3)\n";
    let comment =
        ".\\\" Made from the command's definitions: see crates/latchwork-cli/src/manual.rs.\n";
    comment.to_owned() + &page
}

#[test]
fn the_manual_is_made_from_the_commands_definitions() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/latchwork.1");
    let page = page();
    if std::env::var_os("LATCHWORK_WRITE_MANUAL").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let first = found
        .lines()
        .zip(page.lines())
        .find(|(found, made)| found != made);
    assert!(
        found == page,
        "man/latchwork.1 is not up to date: {first:?}; LATCHWORK_WRITE_MANUAL=1 writes it"
    );
}
