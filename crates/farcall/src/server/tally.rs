//! What was counted, as memory that others read: it is written down when somebody does.
//!
//! So it costs a call nothing, and is served like all memory, by whoever receives, while no procedure ends.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use farcall_proto::READINGS;

use super::executor::{Direct, Executor};
use super::exported::{Exported, Exports};
use super::{Core, Server, proto};
use crate::env::Time;
use crate::stats::words::{WORDS, Words};
use crate::stats::{self, Serving};
use crate::stub::Interface as _;
use farcall_memory::clerk::COUNTERS;
use farcall_memory::{Access, TYPE, readable_words};

/// The memory, and what is to be said of this server that does not change.
pub(super) struct Tally {
    exported: Arc<Exported>,
    words: Words,
    since: Time,
    process: u32,
    /// When it was written down last.
    written: Option<Time>,
}

/// The memory that is exported as that, if it is this.
pub(super) fn find(tally: &Option<Tally>, export: u64) -> Option<&Arc<Exported>> {
    tally.as_ref().map(|tally| &tally.exported).filter(|exported| exported.id == export)
}

impl Core {
    /// Writes down what was counted so far, if that is what is exported as that.
    #[cold]
    #[inline(never)]
    pub(super) fn write_down(&mut self, now: Time, export: u64) {
        let Core { protocol, exports, tally, crew, queue, batch, .. } = self;
        let Some(tally) = tally.as_mut().filter(|tally| tally.exported.id == export) else { return };
        // Calls that came together read the same.
        if tally.written.replace(now) == Some(now) {
            return;
        }
        let (executing, threads) = crew.executing();
        tally.words.write(&Serving {
            process: tally.process,
            up: now.since(tally.since),
            executing: executing as u64,
            receiving: crew.receiving() as u64,
            threads: threads as u64,
            queued: (queue.len() + batch.len()) as u64,
            conversations: protocol.conversations() as u64,
            unfinished: protocol.unfinished() as u64,
            held_bytes: protocol.held_bytes() as u64,
            protocol: *protocol.stats(),
            exports: self::exports(protocol, exports).collect(),
            untold: 0,
        });
    }
}

impl Server {
    /// Offers what is counted here as memory, as an export and a generation that nobody else has.
    pub(crate) fn export_counters(&self, export: u64, generation: u64) {
        let words: Arc<[AtomicU64]> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let memory = readable_words(words.clone(), generation, &*self.env);
        let executor = Executor::Here(Box::new(Direct::<dyn Access>(Arc::new(()))));
        let exported = Exported::new(export, &[], Some(<dyn Access>::interface()), executor, &self.env);
        let (type_name, instance) = (TYPE.to_owned(), COUNTERS.to_owned());
        let offer = proto::Export { id: export, type_name, instance, procedures: Vec::new() };
        let (since, process) = (self.now(), self.env.process_id());
        let exported = Arc::new(exported.with_memory(Some(memory)));
        let mut core = self.lock();
        core.protocol.export(offer);
        core.tally = Some(Tally { exported, words: Words::new(words), since, process, written: None });
    }

    /// The memory that is exported as that, if it is what was counted, which is written down now if that procedure reads it.
    pub(super) fn tallied(&self, export: u64, procedure: u32) -> Option<Arc<Exported>> {
        let now = self.now();
        let mut core = self.lock();
        if procedure >= READINGS {
            core.write_down(now, export);
        }
        find(&core.tally, export).cloned()
    }
}

/// What was counted of each export.
pub(super) fn exports(protocol: &proto::Server, exports: &Exports) -> impl Iterator<Item = stats::Export> {
    exports.iter().map(|exported| {
        let known = protocol.exported(exported.id);
        exported
            .stats(known.map_or_else(String::new, |known| format!("{}/{}", known.type_name, known.instance)))
    })
}
