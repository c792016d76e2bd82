//! Named objects, and a map.

use arbitrary::Arbitrary;
use latchwork::region::{ObjectError, Region};
use std::collections::BTreeMap;

#[derive(Arbitrary, Debug)]
pub struct Step {
    name: Name,
    is_wide: bool,
    what: What,
}

#[derive(Arbitrary, Debug)]
pub enum Name {
    Short(u8),
    Any(String),
}

#[derive(Arbitrary, Debug)]
pub enum What {
    Make(u64),
    Find,
    Remove,
}

const MOST: usize = 12;

pub fn run(region: &Region, steps: Vec<Step>) {
    let mut model: BTreeMap<String, (bool, u64)> = BTreeMap::new();
    for step in steps.into_iter().take(64) {
        let name = match step.name {
            Name::Short(number) => format!("object {}", number % 16),
            Name::Any(name) => name,
        };
        let is_name = !name.is_empty() && name.len() <= 64 && !name.contains('\0');
        let known = model.get(&name).copied();
        let (found, removes) = match step.what {
            What::Make(value) => {
                let made = match step.is_wide {
                    true => region.object(&name, || [value; 3]).map(|object| object[2]),
                    false => region.object(&name, || value).map(|object| *object),
                };
                if made.is_ok() && known.is_none() {
                    assert!(is_name && model.len() < MOST);
                    model.insert(name, (step.is_wide, value));
                    assert_eq!(made.unwrap(), value);
                    continue;
                }
                (made, false)
            }
            What::Find => {
                let found = match step.is_wide {
                    true => region.find::<[u64; 3]>(&name).map(|object| object[0]),
                    false => region.find::<u64>(&name).map(|object| *object),
                };
                (found, false)
            }
            What::Remove => {
                // SAFETY: no reference to it is left.
                let removed = unsafe {
                    match step.is_wide {
                        true => region.remove::<[u64; 3]>(&name),
                        false => region.remove::<u64>(&name),
                    }
                };
                (removed.map(|()| known.expect("it was there").1), true)
            }
        };
        match (found, known) {
            (Err(ObjectError::Name(_)), None) => assert!(!is_name),
            (Err(ObjectError::DirectoryFull { names }), None) => {
                assert_eq!((names, model.len()), (MOST, MOST))
            }
            (Err(ObjectError::NotFound), None) => assert!(is_name),
            (Err(ObjectError::OtherType), Some((is_wide, _))) => assert_ne!(is_wide, step.is_wide),
            (Ok(value), Some((is_wide, known))) => {
                assert_eq!((step.is_wide, value), (is_wide, known));
                if removes {
                    model.remove(&name);
                }
            }
            (other, known) => panic!("{name:?}: {other:?}, known: {known:?}"),
        }
    }
}
