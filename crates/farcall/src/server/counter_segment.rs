//! The server's counters as a memory segment, which `farcall top` and other clients read.
//!
//! The server writes its counters into the segment only when a client reads it, so the segment makes no call
//! slower. The receiving thread serves the segment like all memory, even while all procedures are stuck.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use farcall_proto::READINGS;

use super::executor::{Direct, Executor};
use super::exported::{Exported, Exports};
use super::{Core, Server, proto};
use crate::builtin::Shown;
use crate::env::Time;
use crate::keys::Access;
use crate::stats::words::{WORDS, Words};
use crate::stats::{self, Serving};
use crate::stub::Interface as _;
use farcall_memory::clerk::COUNTERS;
use farcall_memory::{Access as MemoryAccess, TYPE, readable_words};

/// The segment of counters, and those counters whose values never change.
pub(super) struct CounterSegment {
    exported: Arc<Exported>,
    words: Words,
    since: Time,
    process: u32,
    /// When the counters were last written into the segment.
    written: Option<Time>,
}

/// Returns the segment, if `export` is its identifier.
pub(super) fn find(counter_segment: &Option<CounterSegment>, export: u64) -> Option<&Arc<Exported>> {
    counter_segment
        .as_ref()
        .map(|counter_segment| &counter_segment.exported)
        .filter(|exported| exported.id == export)
}

impl Core {
    /// Writes the counters into the segment, if `export` is its identifier.
    #[cold]
    #[inline(never)]
    pub(super) fn write_down(&mut self, now: Time, export: u64) {
        let Core { protocol, exports, counter_segment, pool, queue, batch, .. } = self;
        let Some(counter_segment) =
            counter_segment.as_mut().filter(|counter_segment| counter_segment.exported.id == export)
        else {
            return;
        };
        // Reads that came together get the same counters.
        if counter_segment.written.replace(now) == Some(now) {
            return;
        }
        let (executing, threads) = pool.executing();
        counter_segment.words.write(&Serving {
            process: counter_segment.process,
            up: now.since(counter_segment.since),
            executing: executing as u64,
            receiving: pool.receiving() as u64,
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
    /// Exports the counters as memory, and what is shown besides them. The caller chooses an identifier and a
    /// generation that no other export has.
    pub(crate) fn export_counters(&self, export: u64, generation: u64, shown: Shown, access: Option<Access>) {
        let words: Arc<[AtomicU64]> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let memory = readable_words(words.clone(), generation, &self.env);
        let executor = Executor::Here(Box::new(Direct::<dyn MemoryAccess>(Arc::new(()))));
        let exported =
            Exported::new(export, (&[], false), Some(<dyn MemoryAccess>::interface()), executor, &self.env);
        let (type_name, instance) = (TYPE.to_owned(), COUNTERS.to_owned());
        let offer = proto::Export { id: export, type_name, instance, procedures: Vec::new() };
        let (since, process) = (self.now(), self.env.process_id());
        let exported = Arc::new(exported.with_memory(Some(memory)).with_shown(shown).with_access(access));
        let mut core = self.lock();
        core.protocol.export(offer);
        core.counter_segment =
            Some(CounterSegment { exported, words: Words::new(words), since, process, written: None });
    }

    /// Returns the segment, if `export` is its identifier, with current counters if `procedure` reads them.
    pub(super) fn counter_segment_of(&self, export: u64, procedure: u32) -> Option<Arc<Exported>> {
        let now = self.now();
        let mut core = self.lock();
        if procedure >= READINGS {
            core.write_down(now, export);
        }
        find(&core.counter_segment, export).cloned()
    }
}

/// Returns the counters of each export.
pub(super) fn exports(protocol: &proto::Server, exports: &Exports) -> impl Iterator<Item = stats::Export> {
    exports.iter().map(|exported| {
        let known = protocol.exported(exported.id);
        exported
            .stats(known.map_or_else(String::new, |known| format!("{}/{}", known.type_name, known.instance)))
    })
}
