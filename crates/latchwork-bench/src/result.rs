//! The results of a scenario: these types are the JSON schema.
//!
//! A file holds one [`ScenarioResult`] a line, one for each scenario that ran. Fields that do not apply to a row are
//! omitted. Figures have three decimals, ratios four: more would be noise, and short decimals survive conversion to
//! text and back unchanged.

mod distribution;
mod params;
mod run;
mod warning;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use distribution::{Bin, Distribution};
pub use params::{Better, Kind, Mode, Params, Placement, Sched, Switch, Unit, Variant};
pub use run::Run;
pub(crate) use run::today;
pub use warning::Warning;

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
    /// When and how it ran; absent in results of versions that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
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
    /// one. A figure is the median over the rounds; if the name begins with `longest_`, it is the largest. Percentiles
    /// of `durations`, such as `wait_p99_ns`, are of all rounds together. `disturbed_rounds` is the number of rounds in
    /// which other programs had the CPUs, even after the sample was repeated; omitted if there are none. A published
    /// figure is called `published_`, the machine, and its unit or the name of the figure that it stands beside.
    #[serde(default)]
    pub extra: BTreeMap<String, f64>,
    /// The figure of each task, in the tasks' order, in the round whose figure is the median (of an even number of
    /// rounds, the lower one in the middle); omitted if a scenario does not distinguish them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<f64>,
    /// The durations of all rounds, if the scenario records durations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durations: Option<Distribution>,
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
            run: Some(Run {
                date: "2026-01-31".into(),
                command: "latchwork bench call-overhead --quick".into(),
                version: "0.1.0".into(),
                class: "SCHED_OTHER".into(),
                quick: true,
                virtual_machine: false,
                seconds: Some(42),
            }),
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
                durations: Some(Distribution {
                    of: "wait".into(),
                    count: 3,
                    p50_ns: 20,
                    p90_ns: 900,
                    p99_ns: 900,
                    p999_ns: 900,
                    p9999_ns: 900,
                    longest_ns: 900,
                    bins: vec![Bin {
                        above_ns: 800,
                        up_to_ns: 1000,
                        count: 3,
                    }],
                }),
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
            "run": {"date": "2026-01-31", "command": "latchwork bench call-overhead --quick", "version": "0.1.0",
                    "class": "SCHED_OTHER", "quick": true, "virtual_machine": false, "seconds": 42},
            "rounds": 5, "base": "glibc normal",
            "rows": [{"contestant": "latchwork wait-wake",
                      "params": {"tasks": 1, "placement": "same-cpu", "kind": "threads"},
                      "unit": "ns", "better": "lower", "median": 17.123, "min": 16.9, "max": 20.001,
                      "ratio": {"median": 0.8734, "min": 0.8, "max": 0.9},
                      "extra": {"unlock_slow_paths": 0.0}, "each": [17.5, 16.75],
                      "durations": {"of": "wait", "count": 3, "p50_ns": 20, "p90_ns": 900, "p99_ns": 900,
                                    "p999_ns": 900, "p9999_ns": 900, "longest_ns": 900,
                                    "bins": [{"above_ns": 800, "up_to_ns": 1000, "count": 3}]}}],
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
