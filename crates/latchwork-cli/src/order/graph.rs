//! Edges, by the names of both ends.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};

/// The schema that this reads.
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
        // The fields are strings only, so serialising cannot fail.
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

/// A line of which only the beginning exists: its writer was killed, or the disk was full.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CutOff {
    path: PathBuf,
    line: usize,
}

impl fmt::Display for CutOff {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line } = self;
        write!(
            to,
            "{}, line {line} is cut off: one edge is not read",
            path.display()
        )
    }
}

#[derive(Debug, Default)]
pub(crate) struct Graph {
    edges: BTreeMap<(String, String), Edge>,
    /// The lines that could not be read.
    pub(crate) cut_off: Vec<CutOff>,
}

/// The first bytes of each line.
const BEGINNING: &[u8] = b"{\"schema\":\"latchwork-order-";

/// The parts of a line that may be edges. All but the last are cut off: the next writer has appended directly after
/// them.
fn parts(line: &[u8]) -> Vec<&[u8]> {
    let begins = |at: &usize| line[*at..].starts_with(BEGINNING);
    // In a name, a quote follows a backslash, so that no name views like a beginning.
    let mut starts: Vec<usize> = (1..line.len()).filter(begins).collect();
    starts.insert(0, 0);
    let ends = starts[1..].iter().copied().chain([line.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(start, end)| &line[*start..end])
        .collect()
}

/// Whether this may be the first part of an edge.
fn is_beginning(part: &[u8]) -> bool {
    let length = part.len().min(BEGINNING.len());
    part[..length] == BEGINNING[..length]
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
        let bytes = std::fs::read(path).map_err(|error| Unreadable::File {
            path: path.to_owned(),
            error,
        })?;
        self.add_lines(path, &bytes)
    }

    fn add_lines(&mut self, path: &Path, bytes: &[u8]) -> Result<(), Unreadable> {
        let path = || path.to_owned();
        for (index, text) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = index + 1;
            for part in parts(text).into_iter().filter(|part| !part.is_empty()) {
                let edge: Edge = match serde_json::from_slice(part) {
                    Ok(edge) => edge,
                    Err(error) if error.is_eof() && is_beginning(part) => {
                        let path = path();
                        self.cut_off.push(CutOff { path, line });
                        continue;
                    }
                    Err(error) => {
                        let path = path();
                        return Err(Unreadable::Line { path, line, error });
                    }
                };
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

    /// Whether there is a path from one class to another.
    pub(crate) fn leads(&self, from: &str, to: &str) -> bool {
        let ways = Ways::of(self);
        let number = |name| ways.numbers.get(name);
        match (number(from), number(to)) {
            (Some(from), Some(to)) => ways.shortest(*from, *to).is_some(),
            _ => from == to,
        }
    }

    /// A cycle through each edge that lies on one; each set of classes once. The files do not contain gates and single
    /// tasks, so cycles that the program's checker has dismissed appear here.
    pub(crate) fn cycles(&self) -> Vec<Vec<&str>> {
        let ways = Ways::of(self);
        let parts = ways.parts();
        let mut seen = BTreeSet::new();
        let mut cycles = Vec::new();
        for edge in self.edges() {
            let [from, to] = [&edge.from, &edge.to].map(|name| ways.numbers[name.as_str()]);
            if parts[from] != parts[to] {
                continue;
            }
            if let Some(way) = ways.shortest(to, from) {
                let classes: BTreeSet<usize> = way.iter().copied().collect();
                if seen.insert(classes) {
                    let names = std::iter::once(from).chain(way);
                    cycles.push(names.map(|number| ways.names[number]).collect());
                }
            }
        }
        cycles
    }
}

/// The graph by numbers, for files with very many edges.
struct Ways<'g> {
    names: Vec<&'g str>,
    numbers: HashMap<&'g str, usize>,
    next: Vec<Vec<usize>>,
    /// The edges in the opposite direction.
    before: Vec<Vec<usize>>,
}

impl<'g> Ways<'g> {
    fn of(graph: &'g Graph) -> Self {
        let mut ways = Self {
            names: Vec::new(),
            numbers: HashMap::new(),
            next: Vec::new(),
            before: Vec::new(),
        };
        for edge in graph.edges() {
            let [from, to] = [&edge.from, &edge.to].map(|name| ways.number(name));
            ways.next[from].push(to);
            ways.before[to].push(from);
        }
        ways
    }

    fn number(&mut self, name: &'g str) -> usize {
        *self.numbers.entry(name).or_insert_with(|| {
            self.names.push(name);
            self.next.push(Vec::new());
            self.before.push(Vec::new());
            self.names.len() - 1
        })
    }

    /// The shortest path from one class to another, both included.
    fn shortest(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let mut came_from = vec![None; self.names.len()];
        let mut reached = VecDeque::from([from]);
        while let Some(at) = reached.pop_front() {
            if at == to {
                let mut way = vec![to];
                while let Some(before) = way.last().filter(|at| **at != from) {
                    way.push(came_from[*before]?);
                }
                way.reverse();
                return Some(way);
            }
            for next in &self.next[at] {
                if *next != from && came_from[*next].is_none() {
                    came_from[*next] = Some(at);
                    reached.push_back(*next);
                }
            }
        }
        None
    }

    /// Numbers for the classes, equal for classes between which paths lead in both directions (strongly connected
    /// components, by Kosaraju's algorithm: in reverse order of finishing times, follow the edges backward).
    fn parts(&self) -> Vec<usize> {
        let count = self.names.len();
        let mut order = Vec::new();
        let mut is_seen = vec![false; count];
        for start in 0..count {
            let mut path = vec![(start, 0)];
            if std::mem::replace(&mut is_seen[start], true) {
                continue;
            }
            while let Some((at, followed)) = path.last_mut() {
                match self.next[*at].get(*followed) {
                    Some(next) => {
                        *followed += 1;
                        if !std::mem::replace(&mut is_seen[*next], true) {
                            path.push((*next, 0));
                        }
                    }
                    None => {
                        order.push(*at);
                        path.pop();
                    }
                }
            }
        }
        let mut parts = vec![usize::MAX; count];
        for start in order.into_iter().rev() {
            let mut todo = vec![start];
            while let Some(at) = todo.pop() {
                if parts[at] == usize::MAX {
                    parts[at] = start;
                    todo.extend(&self.before[at]);
                }
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: impl IntoIterator<Item = (usize, usize)>) -> Graph {
        let edge = |(from, to): (usize, usize)| {
            let [from, to] = [from, to].map(|number| format!("class {number}"));
            let key = (from.clone(), to.clone());
            let edge = Edge {
                schema: SCHEMA.into(),
                from,
                to,
                from_kind: String::new(),
                to_kind: String::new(),
                held_at: String::new(),
                wanted_at: String::new(),
            };
            (key, edge)
        };
        Graph {
            edges: edges.into_iter().map(edge).collect(),
            cut_off: Vec::new(),
        }
    }

    fn line(from: &str, to: &str) -> String {
        let edge = graph([(0, 1)]).edges.into_values().next().unwrap();
        let (from, to) = (from.to_owned(), to.to_owned());
        Edge { from, to, ..edge }.to_json()
    }

    /// Wherever a file is cut off, in mid-character or in a name that views like a beginning, and wherever the next run
    /// has appended to it.
    #[test]
    fn all_complete_lines_of_a_truncated_file_are_read() {
        let name = String::from_utf8_lossy(BEGINNING);
        let lines = [
            line("a", "b"),
            line(&format!("ö{name}"), "c"),
            line("c", "a"),
        ];
        let whole = lines.join("\n").into_bytes();
        for end in 1..whole.len() {
            let cut = &whole[..end];
            let begun = cut.split(|byte| *byte == b'\n').count();
            let (edges, cut_off) = match (whole[end], cut[end - 1]) {
                (b'\n', _) => (begun, 0),
                (_, b'\n') => (begun - 1, 0),
                _ => (begun - 1, 1),
            };
            let next = [cut, line("x", "y").as_bytes(), b"\n"].concat();
            for (bytes, edges) in [(cut, edges), (&next, edges + 1)] {
                let mut graph = Graph::default();
                graph.add_lines(Path::new("file"), bytes).unwrap();
                assert_eq!(graph.edges.len(), edges, "{end}");
                assert_eq!(graph.cut_off.len(), cut_off, "{end}");
            }
        }
    }

    #[test]
    fn a_long_chain_is_followed_and_closed() {
        const LENGTH: usize = 30_000;
        let chain = (0..LENGTH).map(|number| (number, number + 1));
        let open = graph(chain.clone());
        assert!(open.cycles().is_empty());
        assert!(open.leads("class 0", &format!("class {LENGTH}")));
        assert!(!open.leads("class 1", "class 0"));
        let pair = chain.chain([(7, 6)]);
        assert_eq!(graph(pair).cycles(), [["class 6", "class 7", "class 6"]]);
    }

    #[test]
    fn the_shortest_cycle_through_each_edge_is_named_once() {
        let cycles = graph([(1, 2), (2, 3), (3, 1), (2, 1), (4, 5)]);
        let found = cycles.cycles();
        let expected: [&[&str]; 2] = [
            &["class 1", "class 2", "class 1"],
            &["class 2", "class 3", "class 1", "class 2"],
        ];
        assert_eq!(found, expected);
    }
}
