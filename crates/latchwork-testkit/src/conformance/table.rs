//! RTEMS's tables, in the form in which they are written.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

macro_rules! files {
    ($($name:literal)*) => {
        [$(include_str!(concat!("../../data/rtems/", $name, ".json"))),*]
    };
}

const FILES: [&str; 29] = files!(
    "sem/create" "sem/delete" "sem/flush" "sem/mrsp-obtain" "sem/obtain" "sem/release"
    "sem/set-priority" "sem/timeout"
    "score/mtx/seize-try" "score/mtx/seize-wait" "score/mtx/surrender"
    "score/sem/seize-try" "score/sem/seize-wait" "score/sem/surrender"
    "score/tq/enqueue-ceiling" "score/tq/enqueue-deadlock" "score/tq/enqueue-fifo"
    "score/tq/enqueue-mrsp" "score/tq/enqueue-priority-inherit" "score/tq/enqueue-priority"
    "score/tq/flush-fifo" "score/tq/flush-priority-inherit" "score/tq/flush-priority"
    "score/tq/surrender-mrsp" "score/tq/surrender-priority-inherit" "score/tq/surrender"
    "score/tq/timeout-mrsp" "score/tq/timeout-priority-inherit" "score/tq/timeout"
);

/// What RTEMS requires of one action.
#[derive(Debug, Deserialize)]
pub struct Table {
    /// Its name, such as `rtems/sem/create`.
    pub action: String,
    /// RTEMS's file from which it is taken.
    pub source: String,
    /// Its licence.
    pub licence: String,
    /// The copyright holders.
    pub copyright: Vec<String>,
    /// The pre-conditions.
    pub pre: Vec<Condition>,
    /// The post-conditions.
    pub post: Vec<Condition>,
    /// Reasons for which combinations are skipped, and what they mean.
    pub skip: BTreeMap<String, String>,
    pub(super) transitions: Vec<Transition>,
}

/// A condition, of which exactly one state holds.
#[derive(Debug, Deserialize)]
pub struct Condition {
    /// Its name.
    pub name: String,
    /// Its states.
    pub states: Vec<State>,
}

/// A state of a condition.
#[derive(Debug, Deserialize)]
pub struct State {
    /// Its name.
    pub name: String,
    /// What it means, in RTEMS's words.
    pub meaning: String,
}

/// A row of the table.
#[derive(Debug, Deserialize)]
pub(super) struct Transition {
    #[serde(rename = "if")]
    pub(super) when: When,
    pub(super) then: Then,
    #[serde(default)]
    pub(super) enabled: Enabled,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum When {
    States(BTreeMap<String, States>),
    Word(DefaultWord),
}

#[derive(Debug, Deserialize)]
pub(super) enum DefaultWord {
    #[serde(rename = "default")]
    Default,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum States {
    Some(Vec<String>),
    Every(Every),
}

#[derive(Debug, Deserialize)]
pub(super) enum Every {
    #[serde(rename = "all")]
    All,
    /// All of them, and they are irrelevant.
    #[serde(rename = "N/A")]
    NoMatter,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Then {
    Skip(String),
    States(BTreeMap<String, Choice>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Choice {
    State(String),
    /// The first case that holds decides.
    Cases(Vec<Case>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Case {
    If {
        #[serde(rename = "if")]
        test: Test,
        #[serde(flatten)]
        then: CaseThen,
    },
    Else {
        #[serde(rename = "else")]
        state: String,
    },
    /// The state of the pre-condition of this name.
    As {
        #[serde(rename = "specified-by")]
        pre: String,
    },
}

#[derive(Debug, Deserialize)]
pub(super) enum CaseThen {
    #[serde(rename = "then")]
    State(String),
    #[serde(rename = "then-specified-by")]
    As(String),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Test {
    Any(Vec<Test>),
    One(Operator),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Operator {
    And(Vec<Test>),
    Or(Vec<Test>),
    Not(Box<Test>),
    PreConditions(BTreeMap<String, OneOrMore>),
    PostConditions(BTreeMap<String, OneOrMore>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    pub(super) fn contains(&self, state: &str) -> bool {
        match self {
            Self::One(one) => one == state,
            Self::More(more) => more.iter().any(|one| one == state),
        }
    }
}

/// The build options under which a row applies.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(untagged)]
pub(super) enum Enabled {
    Always(bool),
    With(BuildOption),
    Without { not: BuildOption },
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub(super) enum BuildOption {
    /// Holds here: tasks run on several processors.
    #[serde(rename = "RTEMS_SMP")]
    Smp,
}

impl Default for Enabled {
    fn default() -> Self {
        Self::Always(true)
    }
}

impl Enabled {
    pub(super) fn holds(&self) -> bool {
        match self {
            Self::Always(always) => *always,
            Self::With(BuildOption::Smp) => true,
            Self::Without {
                not: BuildOption::Smp,
            } => false,
        }
    }
}

impl Table {
    /// All tables.
    ///
    /// # Panics
    /// If one cannot be read, which is a fault of this crate.
    pub fn all() -> &'static [Self] {
        static TABLES: OnceLock<Vec<Table>> = OnceLock::new();
        TABLES.get_or_init(|| {
            FILES
                .iter()
                .map(|text| serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}")))
                .collect()
        })
    }

    /// The table of an action, such as `rtems/sem/create`.
    ///
    /// # Panics
    /// If there is no such table.
    #[must_use]
    pub fn named(action: &str) -> &'static Self {
        Self::all()
            .iter()
            .find(|table| table.action == action)
            .unwrap_or_else(|| panic!("there is no table of {action}"))
    }
}

impl Condition {
    /// Whether it has a state of this name.
    #[must_use]
    pub fn has(&self, state: &str) -> bool {
        self.states.iter().any(|known| known.name == state)
    }
}
