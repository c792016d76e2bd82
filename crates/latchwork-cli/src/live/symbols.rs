//! Names of locks: the symbol of a static, the object of a region, or another description of the place. And places in
//! programs.

use super::picture::{Key, Location, Lock, Module, Picture, Spot};
use super::program::Program;
use std::collections::HashMap;

/// The symbols of the programs that were read so far.
#[derive(Default)]
pub(crate) struct Symbols {
    programs: HashMap<(u64, u64), Program>,
}

impl Symbols {
    /// Gives the picture's locks their names.
    pub(crate) fn name_all(&mut self, picture: &mut Picture) {
        let mut locks = std::mem::take(&mut picture.locks);
        for lock in &mut locks {
            if let Location::Module(module) = &lock.place
                && self
                    .program(lock.pid, module)
                    .ends_before(module, lock.address)
            {
                lock.place = Location::Anonymous;
            }
            // A name that the program gave is better than a place. (On its board, a program's checker names a static by
            // its place, since it reads symbols only for reports.)
            let is_given = match &lock.place {
                Location::Module(module) => lock.name != place_in(module, lock.address),
                _ => true,
            };
            if lock.name.is_empty() || !is_given {
                lock.name = self.name(picture, lock);
            }
            if let Some(spot) = &mut lock.made_at {
                self.look_up(spot);
            }
            for hold in &mut lock.holds {
                self.look_up(&mut hold.at);
            }
        }
        picture.locks = locks;
        for task in &mut picture.tasks {
            if let Some(spot) = &mut task.waits_at {
                self.look_up(spot);
            }
        }
    }

    fn name(&mut self, picture: &Picture, lock: &Lock) -> String {
        match &lock.place {
            Location::Module(module) => self.name_of_static(lock, module),
            Location::Region { region, object } => {
                let region = picture.regions.get(*region);
                let region = region.map_or("?", |region| &region.name);
                match object {
                    Some(object) => format!("{region}:{object}"),
                    None => format!("{region}:{:#x}", lock.address),
                }
            }
            Location::File { path, offset } => {
                let path = path.strip_suffix(" (deleted)").unwrap_or(path);
                match path {
                    // The kernel's name for anonymous shared memory.
                    "/dev/zero" => match lock.key {
                        Key::Shared { inode, .. } => format!("shared memory {inode}+{offset:#x}"),
                        _ => format!("shared memory+{offset:#x}"),
                    },
                    path => format!("{path}+{offset:#x}"),
                }
            }
            Location::Heap => format!("heap {:#x}", lock.address),
            Location::Stack => format!("stack {:#x}", lock.address),
            Location::Anonymous => format!("{:#x}", lock.address),
        }
    }

    fn program(&mut self, pid: u32, module: &Module) -> &mut Program {
        self.programs
            .entry((module.device, module.inode))
            .or_insert_with(|| Program::read(pid, module))
    }

    fn name_of_static(&mut self, lock: &Lock, module: &Module) -> String {
        let file = module.file_name();
        match self
            .program(lock.pid, module)
            .find_static(module, lock.address)
        {
            Some((name, 0)) => format!("{file}:{name}"),
            Some((name, offset)) => format!("{file}:{name}+{offset:#x}"),
            None => place_in(module, lock.address),
        }
    }

    /// Finds the line that a call returned to, or at least the function.
    fn look_up(&mut self, spot: &mut Spot) {
        let Spot::Code {
            pid,
            module,
            address,
        } = spot
        else {
            return;
        };
        // The instruction after the call may belong to another line.
        let call = address.saturating_sub(1);
        let text = self
            .program(*pid, module)
            .find_line(module, call)
            .unwrap_or_else(|| place_in(module, *address));
        *spot = Spot::Text(text);
    }
}

fn place_in(module: &Module, address: u64) -> String {
    let file = module.file_name();
    format!("{file}+{:#x}", address.wrapping_sub(module.start))
}
