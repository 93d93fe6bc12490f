//! The posted writes of a simulated client. The client imports a server's memory, posts writes to it, and
//! asks how many writes the server has executed.

use farcall_memory::posted::{Answer, Asking, Posts, may_ask_again};
use farcall_proto::MAX_POST;

use super::{ClientNode, Op, Reply};
use crate::ground::Ground;
use crate::memory::{FORGOTTEN, POSTED, Post, REFUSED};
use crate::net::address;

/// A client's import of a server's memory, with the writes that the client has posted to it.
pub struct Import {
    /// The oracle's number for this import.
    truth: usize,
    export: u64,
    posts: Posts<()>,
    /// The unanswered question, and the number of the first write about which it does not ask.
    asking: Option<(Asking, u64)>,
}

impl ClientNode {
    /// Posts some writes if the import has a stream, and sometimes asks how many writes are executed. If the
    /// server's current export is not imported yet, makes the call that opens a stream.
    pub fn post(&mut self, g: &mut Ground, server: usize) {
        let Some(talk) = &mut self.conversations[server] else { return };
        let Some(export) = talk.export else { return };
        let Some(import) = talk.import.as_mut().filter(|import| import.export == export) else {
            let truth = g.oracle.import(server, export);
            let posts = Posts::new(g.plan.posting);
            talk.import = Some(Import { truth, export, posts, asking: None });
            if !self.call(g, server, export, Op::Open(truth))
                && let Some(talk) = &mut self.conversations[server]
            {
                talk.import = None;
            }
            return;
        };
        for _ in 0..g.rng.spread(1, 128) {
            let Some((stream, number)) = import.posts.next().filter(|_| !import.posts.is_full()) else {
                break;
            };
            let mut post = Vec::new();
            let length = Post::LEN + (g.rng.below(MAX_POST as u64 - Post::LEN as u64) as usize & !3);
            g.oracle.write_post(Post { stream, number, import: import.truth as u64 }, length, &mut post);
            let Some(len) = talk.core.post(export, &post, &mut g.scratch) else { break };
            g.send_after(self.later, self.address, address(server, 7000), len);
            import.posts.sent(post);
            talk.touched = g.net.now();
        }
        if import.asking.is_none() && (import.posts.is_full() || g.rng.chance(400_000)) {
            let most = if g.rng.chance(500_000) { 0 } else { Posts::<()>::MAX_AFTER_WAIT };
            let end = import.posts.next().map_or(0, |(_, next)| next.saturating_sub(most as u64));
            import.asking = import.posts.ask(most).map(|asking| (asking, end));
            self.ask(g, server);
        }
    }

    /// Makes the call that asks how many writes are executed, if there is a question.
    fn ask(&mut self, g: &mut Ground, server: usize) {
        let Some(import) = self.conversations[server].as_mut().and_then(|talk| talk.import.as_mut()) else {
            return;
        };
        let Some((asking, _)) = &import.asking else { return };
        let (export, question) = (import.export, Op::Posted(import.truth, asking.stream()));
        if self.call(g, server, export, question) {
            return;
        }
        if let Some(import) = self.conversations[server].as_mut().and_then(|talk| talk.import.as_mut()) {
            import.asking = None;
        }
    }

    /// Handles the end of a call that opened a stream or asked about posted writes.
    pub fn posts_end(&mut self, g: &mut Ground, server: usize, call: usize, reply: Reply) {
        let meant = g.oracle.calls[call];
        let Some(talk) = &mut self.conversations[server] else { return };
        let Some(import) = talk.import.as_mut().filter(|import| Some(import.truth) == meant.import) else {
            return;
        };
        let head = match reply {
            Reply::Access(head) => head,
            Reply::Failed(why) if may_ask_again(why) && meant.procedure == POSTED => {
                import.asking = None;
                return;
            }
            Reply::Failed(_) | Reply::Other => {
                talk.import = None;
                return;
            }
        };
        if meant.procedure != POSTED {
            return import.posts.opened(head.word);
        }
        let Some((asking, end)) = &mut import.asking else { return };
        if head.status == FORGOTTEN || head.status == REFUSED {
            talk.import = None;
            return;
        }
        match import.posts.acknowledge(asking, head.word) {
            Answer::Done => {
                g.oracle.flushed(g.net.now(), import.truth, *end);
                import.asking = None;
            }
            Answer::SendAgain => {
                for post in import.posts.unacknowledged() {
                    let Some(len) = talk.core.post(import.export, post, &mut g.scratch) else { break };
                    g.send_after(self.later, self.address, address(server, 7000), len);
                }
                self.ask(g, server);
            }
            Answer::NoProgress => talk.import = None,
            Answer::Impossible if g.oracle.was_restored(import.export) => talk.import = None,
            Answer::Impossible => {
                let (now, next) = (g.now(), import.posts.next());
                g.oracle.violate("posts-in-order-and-once", now, || {
                    format!("import {}: the answer is {head:?}, the next write {next:?}", import.truth)
                });
            }
        }
    }
}
