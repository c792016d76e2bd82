//! Edges, by the names of both ends.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The schema that is read.
const SCHEMA: &str = "latchwork-order-1";

/// A line of a file.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Edge {
    schema: String,
    pub(crate) from: String,
    pub(crate) to: String,
    from_kind: String,
    to_kind: String,
    pub(crate) held_at: String,
    pub(crate) wanted_at: String,
}

impl Edge {
    pub(crate) fn to_json(&self) -> String {
        // Strings only: nothing that could fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("{path}: {error}")]
    File {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{path}, line {line}: {error}")]
    Line {
        path: PathBuf,
        line: usize,
        error: serde_json::Error,
    },
    #[error("{path}, line {line}: the schema is {found:?}, not {SCHEMA:?}")]
    Schema {
        path: PathBuf,
        line: usize,
        found: String,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Graph {
    edges: BTreeMap<(String, String), Edge>,
}

impl Graph {
    pub(crate) fn read(files: &[PathBuf]) -> Result<Self, Unreadable> {
        let mut graph = Self::default();
        for path in files {
            graph.add(path)?;
        }
        Ok(graph)
    }

    fn add(&mut self, path: &Path) -> Result<(), Unreadable> {
        let path = || path.to_owned();
        let text = std::fs::read_to_string(path()).map_err(|error| Unreadable::File {
            path: path(),
            error,
        })?;
        for (index, text) in text.lines().enumerate() {
            let line = index + 1;
            let edge: Edge = serde_json::from_str(text).map_err(|error| Unreadable::Line {
                path: path(),
                line,
                error,
            })?;
            if edge.schema != SCHEMA {
                return Err(Unreadable::Schema {
                    path: path(),
                    line,
                    found: edge.schema,
                });
            }
            let key = (edge.from.clone(), edge.to.clone());
            self.edges.entry(key).or_insert(edge);
        }
        Ok(())
    }

    pub(crate) fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.edges.values()
    }

    pub(crate) fn has(&self, edge: &Edge) -> bool {
        self.edges
            .contains_key(&(edge.from.clone(), edge.to.clone()))
    }

    /// The nodes that edges from one lead to.
    fn next<'g>(&'g self, from: &str) -> impl Iterator<Item = &'g str> {
        let first = (from.to_owned(), String::new());
        let from = from.to_owned();
        self.edges
            .range(first..)
            .take_while(move |((start, _), _)| *start == from)
            .map(|((_, to), _)| to.as_str())
    }

    /// Whether there is a way from one class to another.
    pub(crate) fn leads(&self, from: &str, to: &str) -> bool {
        self.way(from, to).is_some()
    }

    /// The shortest way from one class to another, both included.
    fn way(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let mut reached = BTreeSet::from([from.to_owned()]);
        let mut ways = vec![vec![from.to_owned()]];
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in ways {
                let last = way.last().cloned().unwrap_or_default();
                if last == to {
                    return Some(way);
                }
                for next in self.next(&last) {
                    if reached.insert(next.to_owned()) {
                        longer.push([way.clone(), vec![next.to_owned()]].concat());
                    }
                }
            }
            ways = longer;
        }
        None
    }

    /// A circle through each edge that is in one; each set of classes once. Gates and single tasks are not in the
    /// files: what a program has dismissed comes up here.
    pub(crate) fn circles(&self) -> Vec<Vec<String>> {
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for edge in self.edges() {
            if let Some(way) = self.way(&edge.to, &edge.from) {
                let classes: BTreeSet<String> = way.iter().cloned().collect();
                if seen.insert(classes) {
                    circles.push([vec![edge.from.clone()], way].concat());
                }
            }
        }
        circles
    }
}
