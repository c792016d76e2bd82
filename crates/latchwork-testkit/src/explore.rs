//! All states of a model: what loom cannot reach, since it runs the real code, and the kernel is no part of that.
//!
//! A model says how a state begins, and which states follow it by one step of one of its tasks. [`explore`] visits every
//! state that can be reached, the nearest first, and reports the first one
//! - in which the model finds [trouble](Model::trouble),
//! - in which nothing can happen, although it is no [end](Model::is_end), or
//! - from which no end can be reached: some task waits for ever, however lucky it is.
//!
//! The report has the shortest way there. A model that finds nothing proves something only if it finds planted faults: each
//! has negative twins, which [`expect`] runs.
//!
//! *Large bounds.* Then a state is remembered by 64 bits of a hash, in 8 bytes, and the third check is left out. Two of *n*
//! states have the same hash with a probability of n² / 2⁶⁵, and then one of them is not visited: for 6 · 10⁸ states
//! 1 in 100.
//!
//! *Why not a library?* `stateright` visits states, too. It checks neither the second nor the third of these conditions (its
//! properties of the kind *eventually* hold on a cycle), keeps 16 bytes and a predecessor for each state, and brings a web
//! server.

mod known;

use known::{Hashes, Numbers, hash_of};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::Hash;
use std::io::Write;
use std::time::{Duration, Instant};

/// What tasks can do, step by step.
pub trait Model {
    /// Everything that a step depends on.
    type State: Clone + Eq + Hash + Debug;

    /// The state at the beginning.
    fn initial(&self) -> Self::State;

    /// How many kills are left in a state, if the model is to begin with each smaller number as well. (A task that waits for
    /// ever may still be killed, as long as there are kills left, so that a model with two kills does not show all that one
    /// with one does.)
    fn kills(_: &mut Self::State) -> Option<&mut u8> {
        None
    }

    /// All states at the beginning: one for each number of kills.
    fn beginnings(&self) -> Vec<Self::State> {
        let most = Self::kills(&mut self.initial()).map_or(0, |kills| *kills);
        let begin = |number| {
            let mut state = self.initial();
            if let Some(kills) = Self::kills(&mut state) {
                *kills = number;
            }
            state
        };
        (0..=most).map(begin).collect()
    }

    /// Adds each state that may follow by one step.
    fn steps(&self, state: &Self::State, steps: &mut Steps<Self::State>);

    /// What is wrong with a state.
    fn trouble(&self, state: &Self::State) -> Option<&'static str>;

    /// Whether everything may rest in this state.
    fn is_end(&self, state: &Self::State) -> bool;
}

const BEGINS: Step = (0, "begins");

/// The states that follow one state.
#[derive(Debug)]
pub struct Steps<S>(Vec<(Step, S)>);

/// A task, and what it does.
type Step = (usize, &'static str);

impl<S> Steps<S> {
    /// A step of a task.
    pub fn add(&mut self, who: usize, what: &'static str, state: S) {
        self.0.push(((who, what), state));
    }

    /// The step to the one state that follows when a task goes on; none if it cannot.
    pub fn go_on(&mut self, who: usize, next: Option<S>) {
        self.0.extend(next.map(|state| ((who, "goes on"), state)));
    }

    /// A step that changes a copy of the state.
    pub fn change(&mut self, who: usize, what: &'static str, from: &S, change: impl FnOnce(&mut S))
    where
        S: Clone,
    {
        let mut state = from.clone();
        change(&mut state);
        self.add(who, what, state);
    }
}

/// What [`explore`] has found.
#[derive(Debug)]
pub struct Explored {
    /// How many states were visited.
    pub states: usize,
    /// How many steps lead from a visited state to another, or back to one.
    pub steps: usize,
    /// How many steps the most distant state is away.
    pub depth: usize,
    /// How long it took.
    pub time: Duration,
    /// What was wrong, if anything was.
    pub trouble: Option<&'static str>,
}

/// Nothing can happen, and it is no end.
pub const STUCK: &str = "nothing can happen any more";
/// No end can be reached.
pub const ENDLESS: &str = "no end can be reached";

/// Visits all states. If something is wrong, prints the way there.
pub fn explore<M: Model>(model: &M) -> Explored {
    let begun = Instant::now();
    let mut known = Numbers::default();
    let mut states = model.beginnings();
    known.extend(states.iter().cloned().zip(0_u32..));
    let mut came_from: Vec<(u32, Step)> = (0..states.len() as u32).map(|at| (at, BEGINS)).collect();
    let mut depth_of = vec![0_u32; states.len()];
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut ends = Vec::new();
    let mut steps = Steps(Vec::new());
    let mut wrong = None;
    let mut at = 0;
    while at < states.len() {
        let state = states[at].clone();
        let is_end = model.is_end(&state);
        if is_end {
            ends.push(at as u32);
        }
        model.steps(&state, &mut steps);
        let is_stuck = steps.0.is_empty() && !is_end;
        if let Some(what) = model.trouble(&state).or(is_stuck.then_some(STUCK)) {
            wrong = Some((what, at));
            break;
        }
        for (step, next) in steps.0.drain(..) {
            let number = states.len() as u32;
            let number = *known.entry(next).or_insert_with_key(|next| {
                states.push(next.clone());
                came_from.push((at as u32, step));
                depth_of.push(depth_of[at] + 1);
                number
            });
            edges.push((number, at as u32));
        }
        at += 1;
    }
    if wrong.is_none() {
        wrong = hopeless(states.len(), &edges, ends).map(|at| (ENDLESS, at));
    }
    if let Some((what, at)) = wrong {
        eprintln!("{what}:");
        print_way(&states, &came_from, at);
    }
    Explored {
        states: states.len(),
        steps: edges.len(),
        depth: depth_of.last().copied().unwrap_or(0) as usize,
        time: begun.elapsed(),
        trouble: wrong.map(|(what, _)| what),
    }
}

/// The first state from which no end can be reached. `edges`: pairs of a state and one before it.
fn hopeless(states: usize, edges: &[(u32, u32)], ends: Vec<u32>) -> Option<usize> {
    // The predecessors of each state, one after the other.
    let mut first = vec![0_u32; states + 1];
    for (to, _) in edges {
        first[*to as usize + 1] += 1;
    }
    for state in 0..states {
        first[state + 1] += first[state];
    }
    let mut before = vec![0_u32; edges.len()];
    let mut next = first.clone();
    for (to, from) in edges {
        let place = &mut next[*to as usize];
        before[*place as usize] = *from;
        *place += 1;
    }
    let mut is_hopeful = vec![false; states];
    let mut left = ends;
    while let Some(state) = left.pop() {
        if !std::mem::replace(&mut is_hopeful[state as usize], true) {
            let [from, to] = [state, state + 1].map(|state| first[state as usize] as usize);
            left.extend_from_slice(&before[from..to]);
        }
    }
    is_hopeful.iter().position(|is_hopeful| !is_hopeful)
}

fn print_way<S: Debug>(states: &[S], came_from: &[(u32, Step)], at: usize) {
    let mut way = vec![at];
    while let Some(last) = way.last().filter(|last| came_from[**last].1 != BEGINS) {
        way.push(came_from[*last].0 as usize);
    }
    for state in way.into_iter().rev() {
        let (_, (who, what)) = came_from[state];
        eprintln!("  {who} {what}: {:?}", states[state]);
    }
}

/// States of which the steps are found before any of these is looked up: the processor then waits for several places of
/// the table at once.
const BATCH: usize = 64;

/// Visits all states, each remembered by its hash; `None` if there are more than `most`.
pub fn explore_large<M: Model>(model: &M, most: usize) -> Option<Explored> {
    let begun = Instant::now();
    let mut seen = Hashes::new();
    let mut level = VecDeque::from(model.beginnings());
    for state in &level {
        seen.insert(hash_of(state));
    }
    let (mut depth, mut count, mut trouble) = (0, 0, None);
    let mut steps = Steps(Vec::new());
    let mut hashes = Vec::new();
    'levels: while !level.is_empty() {
        let mut left = level.len();
        while left > 0 {
            let batch = left.min(BATCH);
            left -= batch;
            for state in level.drain(..batch) {
                let before = steps.0.len();
                model.steps(&state, &mut steps);
                let is_stuck = steps.0.len() == before && !model.is_end(&state);
                trouble = model.trouble(&state).or(is_stuck.then_some(STUCK));
                if let Some(what) = trouble {
                    eprintln!("{what}, {depth} steps away: {state:?}");
                    break 'levels;
                }
            }
            count += steps.0.len();
            hashes.extend(steps.0.iter().map(|(_, next)| hash_of(next)));
            seen.touch(&hashes);
            let next = steps.0.drain(..).zip(hashes.drain(..));
            level.extend(next.filter_map(|((_, next), hash)| seen.insert(hash).then_some(next)));
            if seen.len > most {
                return None;
            }
        }
        depth += usize::from(!level.is_empty());
    }
    Some(Explored {
        states: seen.len,
        steps: count,
        depth,
        time: begun.elapsed(),
        trouble,
    })
}

/// The environment variable that asks for large bounds: the most states of a model.
const LARGE: &str = "LATCHWORK_MODEL_STATES";
/// The file to which each model that was run with large bounds appends a line of JSON.
const REPORT: &str = "LATCHWORK_MODEL_REPORT";

/// Visits all states of a model in which nothing may be wrong, and prints how many they are. With `LATCHWORK_MODEL_STATES`
/// these are the `large` models, each of at most so many states.
///
/// # Panics
/// If something is wrong, or a model has more states than that.
pub fn prove<M: Model + Debug>(name: &str, small: &M, large: &[M]) {
    let Ok(most) = std::env::var(LARGE) else {
        return say(name, small, &explore(small));
    };
    let most = most.parse().expect("a number of states");
    for model in large {
        let explored = explore_large(model, most);
        let explored = explored.unwrap_or_else(|| panic!("{model:?}: more than {most} states"));
        report(name, model, &explored);
        say(name, model, &explored);
    }
}

fn say(name: &str, model: &impl Debug, explored: &Explored) {
    let Explored {
        states,
        steps,
        depth,
        time,
        trouble,
    } = explored;
    println!("{name}: {states} states, {steps} steps, depth {depth}, {time:.1?}: {model:?}");
    assert_eq!(*trouble, None, "{name}: {model:?}");
}

/// Visits the states of a negative twin.
///
/// # Panics
/// If nothing, or something else, is wrong with it.
pub fn expect<M: Model>(name: &str, twin: &M, trouble: &'static str) {
    let explored = explore(twin);
    println!("{name}: {} states: {trouble}", explored.states);
    assert_eq!(explored.trouble, Some(trouble), "{name}");
}

fn report(name: &str, model: &impl Debug, explored: &Explored) {
    let Some(path) = std::env::var_os(REPORT) else {
        return;
    };
    let mut line = serde_json::json!({
        "model": name,
        "bounds": format!("{model:?}"),
        "states": explored.states,
        "steps": explored.steps,
        "depth": explored.depth,
        "seconds": explored.time.as_secs(),
        "trouble": explored.trouble,
    })
    .to_string();
    line.push('\n');
    // One call, to a file that others append to: lines do not mix.
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("the report of a model");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two counters that each count to 3.
    struct Counters {
        /// The first one sticks here.
        sticks_at: u8,
        /// The second one begins again here.
        turns_at: u8,
    }

    impl Model for Counters {
        type State = (u8, u8);

        fn initial(&self) -> (u8, u8) {
            (0, 0)
        }

        fn steps(&self, state: &(u8, u8), steps: &mut Steps<(u8, u8)>) {
            if state.0 < 3 && state.0 != self.sticks_at {
                steps.change(0, "counts", state, |state| state.0 += 1);
            }
            if state.1 < 3 {
                let next = if state.1 == self.turns_at {
                    0
                } else {
                    state.1 + 1
                };
                steps.add(1, "counts", (state.0, next));
            }
        }

        fn trouble(&self, state: &(u8, u8)) -> Option<&'static str> {
            (state.0 > 3).then_some("too much")
        }

        fn is_end(&self, state: &(u8, u8)) -> bool {
            *state == (3, 3)
        }
    }

    #[test]
    fn all_states_are_visited_and_those_without_an_end_are_found() {
        let whole = Counters {
            sticks_at: 9,
            turns_at: 9,
        };
        for explored in [explore(&whole), explore_large(&whole, 16).unwrap()] {
            assert_eq!((explored.states, explored.steps), (16, 24));
            assert_eq!((explored.depth, explored.trouble), (6, None));
        }
        assert!(explore_large(&whole, 15).is_none());
        let sticks = Counters {
            sticks_at: 1,
            turns_at: 9,
        };
        assert_eq!(explore(&sticks).trouble, Some(STUCK));
        assert_eq!(explore_large(&sticks, 16).unwrap().trouble, Some(STUCK));
        let turns = Counters {
            sticks_at: 9,
            turns_at: 1,
        };
        assert_eq!(explore(&turns).trouble, Some(ENDLESS));
    }
}
