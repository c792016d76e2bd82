//! The results of a scenario: these types are the JSON schema.
//!
//! A file holds one [`ScenarioResult`] a line, one for each scenario that ran. Fields that do not apply to a row are
//! omitted. Figures have three decimals, ratios four: more would be noise, and short decimals survive conversion to
//! text and back unchanged.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The version of the schema that this build writes and reads.
pub const SCHEMA: u32 = 1;

/// The measurements of one scenario in one run of the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScenarioResult {
    /// The version of the schema, [`SCHEMA`].
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// Where it ran.
    pub machine: Machine,
    /// The number of rounds.
    pub rounds: u32,
    /// The contestant that the ratios refer to.
    pub base: String,
    /// One row for each contestant and set of parameters.
    pub rows: Vec<Row>,
    /// Warnings about the reliability of the figures.
    pub warnings: Vec<Warning>,
}

/// The machine that a result comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's model name.
    pub cpu: String,
    /// The number of CPUs that this process may run on.
    pub cpus: u32,
    /// The kernel's release.
    pub kernel: String,
    /// The C library and its version.
    pub libc: String,
}

/// One contestant under one set of parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The contestant's name.
    pub contestant: String,
    /// The parameters.
    pub params: Params,
    /// The unit of `median`, `min` and `max`.
    pub unit: Unit,
    /// Which direction is better.
    pub better: Better,
    /// The figure over all rounds.
    #[serde(flatten)]
    pub figure: Spread,
    /// The figure divided by the base's figure of the same round; absent if the base did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Spread>,
    /// Further figures of the row: counters, and published figures for comparison. Each name ends in its unit if it has
    /// one. A figure is the median over the rounds; if the name begins with `longest_`, it is the largest.
    /// `histogram_N` is the number of values up to N and above the next lower bound, for instance `histogram_500_us`
    /// and `histogram_200_us`. `disturbed_rounds` is the number of rounds in which other programs had the CPUs, even
    /// after the sample was repeated; omitted if there are none.
    #[serde(default)]
    pub extra: BTreeMap<String, f64>,
    /// The figure of each task, in the tasks' order, in the round whose figure is the median (of an even number of
    /// rounds, the lower one in the middle); omitted if a scenario does not distinguish them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<f64>,
}

/// Median and range over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// The parameters of a row; absent ones do not apply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    /// The number of tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// The length of the critical section, in pause instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<u32>,
    /// Size of a message, block or private array, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Where the tasks may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// The kind of tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// The scheduling class of the tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sched: Option<Sched>,
    /// Resident memory of the creating process, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_mib: Option<u64>,
    /// How many of 1,024 critical sections sleep for a microsecond instead of computing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleeps: Option<u32>,
    /// The share of readers, in per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_pct: Option<u32>,
    /// The direction in which messages flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The variant of the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<Variant>,
    /// Whether lock checking was on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Switch>,
    /// How many other programs spin at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<u32>,
    /// The quota of a control group for all tasks together, in per cent of one processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_pct: Option<u32>,
}

/// Implements `Display` with the word that the JSON uses.
macro_rules! words {
    ($type:ty { $($variant:ident => $word:literal),* $(,)? }) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $word),* })
            }
        }
    };
}

/// The unit of a row's figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Operations in a second, of all tasks together.
    #[serde(rename = "ops/s")]
    OpsPerSecond,
    /// Bytes.
    Bytes,
    /// Machine instructions.
    Instructions,
}
words!(Unit {
    Ns => "ns",
    Us => "us",
    OpsPerSecond => "ops/s",
    Bytes => "bytes",
    Instructions => "instructions",
});

impl Unit {
    /// All units.
    pub const ALL: [Self; 5] = [
        Self::Ns,
        Self::Us,
        Self::OpsPerSecond,
        Self::Bytes,
        Self::Instructions,
    ];

    /// The better direction for a figure in this unit.
    #[must_use]
    pub fn better(self) -> Better {
        match self {
            Self::OpsPerSecond => Better::Higher,
            Self::Ns | Self::Us | Self::Bytes | Self::Instructions => Better::Lower,
        }
    }
}

/// The better direction of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better: times.
    Lower,
    /// More is better: rates.
    Higher,
}
words!(Better { Lower => "lower", Higher => "higher" });

/// Where the tasks of a row may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// All on one CPU.
    SameCpu,
    /// Each on a CPU of its own.
    DifferentCpu,
    /// Wherever the scheduler puts them.
    Free,
}
words!(Placement { SameCpu => "same-cpu", DifferentCpu => "different-cpu", Free => "free" });

/// The kind of a row's tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Threads of one process.
    Threads,
    /// Forked processes.
    Processes,
    /// Coprocs.
    Coprocs,
}
words!(Kind { Threads => "threads", Processes => "processes", Coprocs => "coprocs" });

/// The scheduling class of the tasks of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sched {
    /// SCHED_OTHER.
    Other,
    /// SCHED_FIFO.
    Fifo,
}
words!(Sched { Other => "other", Fifo => "fifo" });

/// The direction in which messages flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// In one direction, as fast as possible.
    Stream,
    /// Round trips, one at a time.
    RoundTrip,
}
words!(Mode { Stream => "stream", RoundTrip => "round-trip" });

/// The variants of a scenario that has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// heap: a block is freed before the next is allocated.
    Pair,
    /// heap: 64 blocks are allocated, then freed in reverse.
    Batch,
    /// spawn: only as long as the pool of ready coprocs lasts.
    PoolLasts,
    /// spawn: continuously, including the refills of the pool.
    Sustained,
    /// inversion: only the high-priority task and the low-priority one.
    Undisturbed,
    /// inversion: with a load of medium priority.
    Disturbed,
    /// message-throughput: the sender computes each byte, the receiver adds up all of them.
    Computed,
    /// check-overhead: sysbench, threads that use thousands of mutexes, with work in between.
    SysbenchMutex,
    /// check-overhead: sysbench, threads that use few mutexes, without other work.
    SysbenchContended,
    /// check-overhead: sysbench, threads that yield in their critical sections.
    SysbenchThreads,
    /// check-overhead: memcached, with eight clients.
    Memcached,
    /// check-overhead: Redis, with eight clients.
    Redis,
    /// check-overhead: Python, with threads that use a queue.
    Python,
    /// check-overhead: SQLite's shell, sorting with helper threads.
    Sqlite,
    /// check-overhead: stress-ng's mutexes.
    StressMutex,
    /// check-overhead: stress-ng's semaphores.
    StressSem,
    /// message-throughput: all tasks but one send.
    ManyToOne,
    /// message-throughput: all tasks but one receive.
    OneToMany,
    /// message-throughput: half of the tasks send, half receive.
    ManyToMany,
    /// footprint: the lock itself.
    Size,
    /// footprint: the code of the fast paths.
    Text,
    /// footprint: the instructions in that code.
    Instructions,
    /// footprint: the instructions executed, those of libraries included.
    Executed,
    /// footprint: code and constants of a whole program.
    ProgramText,
    /// footprint: initialised data of a whole program.
    ProgramData,
    /// footprint: zeroed data of a whole program.
    ProgramBss,
    /// fine-grained: an event that a task sends to itself.
    EventSelf,
    /// fine-grained: events of many tasks to one.
    EventManyToOne,
    /// fine-grained: a mutex for each task.
    PrivateMutex,
    /// fine-grained: one mutex for all tasks.
    ContestedMutex,
    /// fine-grained: a message that a task sends to itself.
    MessageSelf,
    /// fine-grained: messages of many tasks to one.
    MessageManyToOne,
}
words!(Variant {
    Pair => "pair",
    Batch => "batch",
    PoolLasts => "pool-lasts",
    Sustained => "sustained",
    Undisturbed => "undisturbed",
    Disturbed => "disturbed",
    Computed => "computed",
    SysbenchMutex => "sysbench-mutex",
    SysbenchContended => "sysbench-contended",
    SysbenchThreads => "sysbench-threads",
    Memcached => "memcached",
    Redis => "redis",
    Python => "python",
    Sqlite => "sqlite",
    StressMutex => "stress-mutex",
    StressSem => "stress-sem",
    ManyToOne => "many-to-one",
    OneToMany => "one-to-many",
    ManyToMany => "many-to-many",
    Size => "size",
    Text => "text",
    Instructions => "instructions",
    Executed => "executed",
    ProgramText => "program-text",
    ProgramData => "program-data",
    ProgramBss => "program-bss",
    EventSelf => "event-self",
    EventManyToOne => "event-many-to-one",
    PrivateMutex => "private-mutex",
    ContestedMutex => "contested-mutex",
    MessageSelf => "message-self",
    MessageManyToOne => "message-many-to-one",
});

/// Whether a feature was on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}
words!(Switch { On => "on", Off => "off" });

/// A warning about the reliability of the figures. The text says what was observed and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Warning {
    /// Rounds of one contestant differ much.
    Noisy {
        /// What was observed, and what to do.
        text: String,
    },
    /// Other programs keep the CPUs busy.
    Load {
        /// What was observed, and what to do.
        text: String,
    },
    /// The CPU's clock may change while measuring.
    Frequency {
        /// What was observed, and what to do.
        text: String,
    },
    /// There are fewer CPUs than the scenario needs for all its cases.
    FewCpus {
        /// What was observed, and what to do.
        text: String,
    },
    /// A case was left out for lack of memory.
    Memory {
        /// What was left out, and what it needs.
        text: String,
    },
    /// A contestant is not available here.
    Skipped {
        /// The contestant, the reason, and what would provide it.
        text: String,
    },
    /// A contestant failed while it was measured.
    Failed {
        /// The contestant, and the failure.
        text: String,
    },
    /// The measuring code itself was built without optimisation.
    Unoptimised {
        /// What to do.
        text: String,
    },
}

impl Warning {
    /// What was observed, and what to do about it.
    pub fn text(&self) -> &str {
        match self {
            Self::Noisy { text }
            | Self::Load { text }
            | Self::Frequency { text }
            | Self::FewCpus { text }
            | Self::Memory { text }
            | Self::Skipped { text }
            | Self::Failed { text }
            | Self::Unoptimised { text } => text,
        }
    }
}

/// Why a file of results could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The text is not a result.
    #[error("not a benchmark result: {0}")]
    Syntax(#[from] serde_json::Error),
    /// Another version wrote it.
    #[error("schema {found} of a benchmark result is not {SCHEMA}, the one this version reads")]
    Schema {
        /// The version in the file.
        found: u32,
    },
}

impl ScenarioResult {
    /// The result as one line of JSON, without the line's end.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a result has string keys and finite figures only")
    }

    /// Reads every result in `text`, in order.
    ///
    /// # Errors
    /// [`ReadError::Schema`] for another version's results, [`ReadError::Syntax`] for other text.
    ///
    /// # Examples
    /// ```
    /// use latchwork_bench::result::ScenarioResult;
    ///
    /// let text = r#"{"schema": 1, "scenario": "call-overhead", "rounds": 5, "base": "glibc normal",
    ///     "machine": {"cpu": "any", "cpus": 2, "kernel": "6.18.0", "libc": "glibc 2.36"},
    ///     "rows": [{"contestant": "std", "params": {"tasks": 1}, "unit": "ns", "better": "lower",
    ///               "median": 17.1, "min": 16.9, "max": 17.4}],
    ///     "warnings": []}"#;
    /// let results = ScenarioResult::read_all(text)?;
    /// assert_eq!(results[0].rows[0].figure.median, 17.1);
    /// # Ok::<(), latchwork_bench::result::ReadError>(())
    /// ```
    pub fn read_all(text: &str) -> Result<Vec<Self>, ReadError> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        serde_json::Deserializer::from_str(text)
            .into_iter::<serde_json::Value>()
            .map(|value| {
                let value = value?;
                // The version is checked first: the fields of another schema would only produce confusing errors.
                let Version { schema } = Version::deserialize(&value)?;
                if schema != SCHEMA {
                    return Err(ReadError::Schema { found: schema });
                }
                Ok(serde_json::from_value(value)?)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> ScenarioResult {
        ScenarioResult {
            schema: SCHEMA,
            scenario: "call-overhead".into(),
            machine: Machine {
                cpu: "a \"quoted\" CPU".into(),
                cpus: 2,
                kernel: "6.18.0".into(),
                libc: "glibc 2.36".into(),
            },
            rounds: 5,
            base: "glibc normal".into(),
            rows: vec![Row {
                contestant: "latchwork wait-wake".into(),
                params: Params {
                    tasks: Some(1),
                    placement: Some(Placement::SameCpu),
                    kind: Some(Kind::Threads),
                    ..Params::default()
                },
                unit: Unit::Ns,
                better: Better::Lower,
                figure: Spread {
                    median: 17.123,
                    min: 16.9,
                    max: 20.001,
                },
                ratio: Some(Spread {
                    median: 0.8734,
                    min: 0.8,
                    max: 0.9,
                }),
                extra: BTreeMap::from([("unlock_slow_paths".to_owned(), 0.0)]),
                each: vec![17.5, 16.75],
            }],
            warnings: vec![Warning::Noisy {
                text: "close other programs".into(),
            }],
        }
    }

    #[test]
    fn a_result_survives_a_round_trip_through_json() {
        let results = vec![example(), example()];
        let text: String = results
            .iter()
            .map(|result| result.to_json() + "\n")
            .collect();
        assert_eq!(ScenarioResult::read_all(&text).unwrap(), results);
    }

    #[test]
    fn json_has_the_documented_shape() {
        let value: serde_json::Value = serde_json::from_str(&example().to_json()).unwrap();
        let expected = serde_json::json!({
            "schema": 1, "scenario": "call-overhead",
            "machine": {"cpu": "a \"quoted\" CPU", "cpus": 2, "kernel": "6.18.0", "libc": "glibc 2.36"},
            "rounds": 5, "base": "glibc normal",
            "rows": [{"contestant": "latchwork wait-wake",
                      "params": {"tasks": 1, "placement": "same-cpu", "kind": "threads"},
                      "unit": "ns", "better": "lower", "median": 17.123, "min": 16.9, "max": 20.001,
                      "ratio": {"median": 0.8734, "min": 0.8, "max": 0.9},
                      "extra": {"unlock_slow_paths": 0.0}, "each": [17.5, 16.75]}],
            "warnings": [{"kind": "noisy", "text": "close other programs"}]
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn another_schema_is_refused_by_number() {
        let text = example().to_json().replace("\"schema\":1", "\"schema\":2");
        assert!(matches!(
            ScenarioResult::read_all(&text),
            Err(ReadError::Schema { found: 2 })
        ));
    }

    #[test]
    fn words_of_params_are_those_of_the_json() {
        for word in [
            Variant::Pair,
            Variant::EventManyToOne,
            Variant::MessageManyToOne,
        ] {
            assert_eq!(serde_json::json!(word), word.to_string());
        }
        assert_eq!(
            serde_json::json!(Placement::DifferentCpu),
            Placement::DifferentCpu.to_string()
        );
        for unit in Unit::ALL {
            assert_eq!(serde_json::json!(unit), unit.to_string());
        }
    }
}
