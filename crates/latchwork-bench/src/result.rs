//! The results of a scenario: these types are the JSON schema.
//!
//! A file holds one [`ScenarioResult`] a line, one for each scenario that ran.
//! Fields that do not apply to a row are left out. Figures carry three decimals, ratios four: more
//! would be noise, and short decimals survive a round trip through text unchanged.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The version of the schema that this build writes and reads.
pub const SCHEMA: u32 = 1;

/// What one scenario measured in one run of the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScenarioResult {
    /// The version of the schema, [`SCHEMA`].
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// Where it ran.
    pub machine: Machine,
    /// How often every contestant was measured.
    pub rounds: u32,
    /// The contestant that the ratios refer to.
    pub base: String,
    /// One row for each contestant and set of parameters.
    pub rows: Vec<Row>,
    /// What a reader should know before trusting the figures.
    pub warnings: Vec<Warning>,
}

/// The machine that a result comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's model name.
    pub cpu: String,
    /// The CPUs that this process may run on.
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
    /// What was varied.
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
    /// Further figures of the row: counters, and published figures to compare with. Each name ends
    /// in its unit where it has one. A figure is the median over the rounds; where the name begins
    /// with `longest_`, it is the largest. `histogram_N` is how many lay up to N and above the bound
    /// before, for instance `histogram_500_us` and `histogram_200_us`. `disturbed_rounds` is in how many rounds
    /// other programs had the CPUs, however often the sample was taken again; left out if in none.
    #[serde(default)]
    pub extra: BTreeMap<String, f64>,
    /// The figure of each task, in their order, in the round whose figure is the median (of an even number
    /// of rounds, the lower one in the middle); left out where a scenario does not tell them apart.
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

/// The parameters of a row, as they apply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    /// Tasks that take part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// Length of the protected section, in pause instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<u32>,
    /// Size of a message, block or private array, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Where the tasks may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// What the tasks are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// The scheduling class of the tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sched: Option<Sched>,
    /// Resident memory of the creating process, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_mib: Option<u64>,
    /// How many of 1,024 protected sections sleep for a microsecond instead of computing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleeps: Option<u32>,
    /// Share of readers, in per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_pct: Option<u32>,
    /// How messages flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Which variant of the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<Variant>,
    /// Whether lock checking was on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Switch>,
    /// Programs beside that do nothing but spin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<u32>,
    /// Of one processor, what a control group left to all tasks together, in per cent.
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
    /// All there are.
    pub const ALL: [Self; 5] = [
        Self::Ns,
        Self::Us,
        Self::OpsPerSecond,
        Self::Bytes,
        Self::Instructions,
    ];

    /// Which direction of a figure in this unit is better.
    #[must_use]
    pub fn better(self) -> Better {
        match self {
            Self::OpsPerSecond => Better::Higher,
            Self::Ns | Self::Us | Self::Bytes | Self::Instructions => Better::Lower,
        }
    }
}

/// Which direction of a figure is better.
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

/// What the tasks of a row are.
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

/// How messages flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// One way, as fast as possible.
    Stream,
    /// There and back, one at a time.
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
    /// spawn: as long as the pool of ready coprocs lasts.
    PoolLasts,
    /// spawn: one after the other without end, the refill of the pool included.
    Sustained,
    /// inversion: the high-priority task and the low-priority one alone.
    Undisturbed,
    /// inversion: with a load of medium priority.
    Disturbed,
    /// message-throughput: the sender computes each byte, the receiver adds up all.
    Computed,
    /// check-overhead: sysbench, threads at thousands of mutexes, with work in between.
    SysbenchMutex,
    /// check-overhead: sysbench, threads at few mutexes, and nothing else.
    SysbenchContended,
    /// check-overhead: sysbench, threads that give their processors away in their sections.
    SysbenchThreads,
    /// check-overhead: memcached, asked by eight clients.
    Memcached,
    /// check-overhead: Redis, the same.
    Redis,
    /// check-overhead: Python's threads at a queue.
    Python,
    /// check-overhead: SQLite's shell, sorting with helpers.
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
    /// fine-grained: an event to oneself.
    EventSelf,
    /// fine-grained: events of many tasks to one.
    EventManyToOne,
    /// fine-grained: a mutex for each task.
    PrivateMutex,
    /// fine-grained: one mutex for all tasks.
    ContestedMutex,
    /// fine-grained: a message to oneself.
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

/// Whether something was on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}
words!(Switch { On => "on", Off => "off" });

/// What a reader should know before trusting the figures. The text says what was seen and what to
/// do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Warning {
    /// Rounds of one contestant differ much.
    Noisy {
        /// What was seen, and what to do.
        text: String,
    },
    /// Other programs keep the CPUs busy.
    Load {
        /// What was seen, and what to do.
        text: String,
    },
    /// The CPU's clock may change while measuring.
    Frequency {
        /// What was seen, and what to do.
        text: String,
    },
    /// Fewer CPUs than the scenario would like.
    FewCpus {
        /// What was seen, and what to do.
        text: String,
    },
    /// A case was left out for want of memory.
    Memory {
        /// What was left out, and what it needs.
        text: String,
    },
    /// A contestant is not available here.
    Skipped {
        /// Who, why, and what brings it.
        text: String,
    },
    /// A contestant failed while it was measured.
    Failed {
        /// Who, and how.
        text: String,
    },
    /// The measuring code itself was built without optimisation.
    Unoptimised {
        /// What to do.
        text: String,
    },
}

impl Warning {
    /// What was seen and what to do about it.
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
                // The version first: another schema's fields would only produce a riddle.
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
