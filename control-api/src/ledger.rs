//! The ledger: facts come in from the media threads, which never wait, and one task writes them, a few milliseconds' worth at a time.
//!
//! What follows from a fact is written in its transaction: the webhook that must be sent, the conversation's status. So nothing is
//! told that is not kept, and nothing kept that is not told.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use conversation::call::ConversationId;
use conversation::event::{Event, Stamped};
use conversation::host::Ledger;
use conversation::input::Command;
use conversation::view::View;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::app::Shared;
use crate::clock::{self, Micros};
use crate::conversation::record;
use crate::delivery::{self, webhook};
use crate::store::conversation::{ENDED, Row};
use crate::store::{self, Transaction};

/// How long facts are gathered before they are written together.
const GATHER: Duration = Duration::from_millis(20);
/// Facts of one transaction at most.
const BATCH: usize = 2000;
/// Waits between tries to write while the store fails.
const RETRY: Duration = Duration::from_millis(500);

enum Message {
    Fact(ConversationId, Stamped),
    Flush(oneshot::Sender<()>),
}

/// The way in. Its channel has no bound, because neither may a media thread wait nor may a fact be lost; facts are small and few.
#[derive(Clone)]
pub(crate) struct Facts(mpsc::UnboundedSender<Message>, Arc<AtomicUsize>);

/// The other end.
pub(crate) struct Queue(mpsc::UnboundedReceiver<Message>, Arc<AtomicUsize>);

/// A way in and its other end.
pub(crate) fn channel() -> (Facts, Queue) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Facts(sender, Arc::clone(&waiting)), Queue(receiver, waiting))
}

impl Ledger for Facts {
    fn record(&self, conversation: ConversationId, fact: Stamped) {
        self.1.fetch_add(1, Ordering::Relaxed);
        if self.0.send(Message::Fact(conversation, fact)).is_err() {
            tracing::error!(%conversation, "a fact came after the ledger was closed");
        }
    }
}

impl Facts {
    /// Facts on their way, as far as a sender can tell.
    pub(crate) fn waiting(&self) -> usize {
        self.1.load(Ordering::Relaxed)
    }

    /// Waits until every fact told before is in the store.
    pub(crate) async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        if self.0.send(Message::Flush(done)).is_ok() {
            // The writer is gone only when the server stops.
            let _ = wait.await;
        }
    }
}

/// What the writer knows of a conversation while facts of it come.
struct Live {
    row: Row,
    /// Events that the agent's receiver wants; empty without a receiver.
    wanted: Vec<String>,
    url: String,
    base: Micros,
    sequence: i64,
    view: View,
}

impl Live {
    async fn load(shared: &Shared, id: &str) -> store::Result<Option<Self>> {
        let Some(row) = shared.store.conversation_anywhere(id).await? else { return Ok(None) };
        let agent: serde_json::Value = serde_json::from_str(&row.agent_document).unwrap_or_default();
        let url = agent["callback_url"].as_str().unwrap_or_default().to_owned();
        let wanted =
            if url.is_empty() { Vec::new() } else { crate::agent::show::ids(&agent, "callback_events") };
        let mut view = View::default();
        for fact in shared.store.events(id, 0).await? {
            view.apply(&fact);
        }
        let sequence = shared.store.last_sequence(id).await?;
        let base = row.joined_at.unwrap_or(row.created_at);
        Ok(Some(Self { row, wanted, url, base, sequence, view }))
    }

    /// Takes in the next fact and says what must be written with it.
    fn prepare(&mut self, shared: &Shared, fact: Stamped) -> Prepared {
        if let Event::Joined { unix_micros } = &fact.event {
            self.base = Micros::try_from(*unix_micros).unwrap_or_else(|_| clock::now());
        }
        self.view.apply(&fact);
        let at = self.base.saturating_add(Micros::try_from(fact.at.as_micros()).unwrap_or(Micros::MAX));
        let delivery = webhook::of(&self.row.id, at, &fact.event)
            .filter(|hook| {
                self.wanted.iter().any(|name| name == hook.event) && !shared.is_stopped(&self.row.agent)
            })
            .map(|hook| {
                self.sequence += 1;
                store::delivery::Row {
                    id: webhook::fresh_id(),
                    workspace: self.row.workspace.clone(),
                    conversation: self.row.id.clone(),
                    agent: self.row.agent.clone(),
                    sequence: self.sequence,
                    event: hook.event.to_owned(),
                    url: self.url.clone(),
                    body: hook.body,
                    attempts: 0,
                    first_try: None,
                    next_try: clock::now(),
                }
            });
        let change = match &fact.event {
            Event::Joined { .. } => Change::Begins(at),
            Event::Ended { reason } => Change::Ends {
                reason: record::reason(*reason),
                record: record::folded(&self.view, &self.row.id, self.base).to_string(),
                at,
            },
            _ => Change::None,
        };
        Prepared {
            conversation: self.row.id.clone(),
            workspace: self.row.workspace.clone(),
            fact,
            delivery,
            change,
        }
    }
}

enum Change {
    None,
    Begins(Micros),
    Ends { reason: &'static str, record: String, at: Micros },
}

/// A fact with all that is written with it.
struct Prepared {
    conversation: String,
    workspace: String,
    fact: Stamped,
    delivery: Option<store::delivery::Row>,
    change: Change,
}

/// Writes facts with what follows from them. Tells which webhooks were written and which conversations had been ended before.
async fn write(
    tx: &mut Transaction,
    server: &str,
    facts: &[Prepared],
) -> store::Result<(Vec<usize>, Vec<String>)> {
    let now = clock::now();
    let (mut written, mut refused) = (Vec::new(), Vec::new());
    for (i, prepared) in facts.iter().enumerate() {
        if !store::event::insert(tx, &prepared.conversation, &prepared.workspace, &prepared.fact).await? {
            refused.push(prepared.conversation.clone());
            continue;
        }
        match &prepared.change {
            Change::None => {}
            Change::Begins(at) => {
                store::conversation::begin(tx, &prepared.conversation, server, *at, now).await?
            }
            Change::Ends { reason, record, at } => {
                store::conversation::end(tx, &prepared.conversation, reason, record, *at, now).await?;
            }
        }
        if let Some(delivery) = &prepared.delivery {
            store::delivery::insert(tx, delivery).await?;
            written.push(i);
        }
    }
    Ok((written, refused))
}

/// Adds facts to a conversation that does not run, in one transaction: the sweeper's and the restart's endings.
pub(crate) async fn append(shared: &Shared, id: &str, events: Vec<(Micros, Event)>) -> store::Result<()> {
    let Some(mut live) = Live::load(shared, id).await? else { return Ok(()) };
    let mut tx = shared.store.write().await?;
    let current = store::conversation::find_in(&mut tx, id).await?;
    if current.is_none_or(|row| row.status == ENDED) {
        return Ok(());
    }
    let first = store::event::all_in(&mut tx, id).await?.last().map_or(0, |fact| fact.seq + 1);
    let facts: Vec<Prepared> = events
        .into_iter()
        .enumerate()
        .map(|(i, (at, event))| {
            let at = conversation::time::Time::from_micros(u64::try_from(at - live.base).unwrap_or(0));
            live.prepare(shared, Stamped { seq: first + i as u64, at, event })
        })
        .collect();
    let (written, _) = write(&mut tx, &shared.server, &facts).await?;
    tx.commit().await?;
    announce(shared, facts, &written);
    Ok(())
}

fn announce(shared: &Shared, facts: Vec<Prepared>, written: &[usize]) {
    let mut told: Vec<ConversationId> = facts.iter().filter_map(|p| p.conversation.parse().ok()).collect();
    told.dedup();
    for (i, prepared) in facts.into_iter().enumerate() {
        if let (Some(delivery), true) = (prepared.delivery, written.binary_search(&i).is_ok()) {
            // The receiver lives as long as the background; afterwards the store has it.
            let _ = shared.outbox.send(delivery::News::Written(delivery));
        }
    }
    for id in told {
        // Nobody listens where no stream is open.
        let _ = shared.news.send(id);
    }
}

/// Writes facts until `stop`, then what is still on its way.
pub(crate) async fn run(shared: Arc<Shared>, mut queue: Queue, mut stop: watch::Receiver<bool>) {
    let mut live = HashMap::new();
    loop {
        let first = tokio::select! {
            message = queue.0.recv() => message,
            _ = stop.wait_for(|stop| *stop) => None,
        };
        let Some(first) = first else { break };
        let (mut facts, mut flushes) = (Vec::new(), Vec::new());
        take(first, &mut facts, &mut flushes);
        let until = Instant::now() + GATHER;
        while flushes.is_empty() && facts.len() < BATCH {
            match tokio::time::timeout_at(until, queue.0.recv()).await {
                Ok(Some(message)) => take(message, &mut facts, &mut flushes),
                Ok(None) | Err(_) => break,
            }
        }
        let written = facts.len();
        commit(&shared, &mut live, facts, &stop).await;
        queue.1.fetch_sub(written, Ordering::Relaxed);
        for done in flushes {
            let _ = done.send(());
        }
    }
    let (mut facts, mut flushes) = (Vec::new(), Vec::new());
    while let Ok(message) = queue.0.try_recv() {
        take(message, &mut facts, &mut flushes);
    }
    commit(&shared, &mut live, facts, &stop).await;
}

fn take(
    message: Message,
    facts: &mut Vec<(ConversationId, Stamped)>,
    flushes: &mut Vec<oneshot::Sender<()>>,
) {
    match message {
        Message::Fact(id, fact) => facts.push((id, fact)),
        Message::Flush(done) => flushes.push(done),
    }
}

/// Writes a batch, trying again until it is in the store: facts are not lost because a disk is full for a while.
async fn commit(
    shared: &Shared,
    live: &mut HashMap<ConversationId, Live>,
    facts: Vec<(ConversationId, Stamped)>,
    stop: &watch::Receiver<bool>,
) {
    let mut prepared = Vec::with_capacity(facts.len());
    for (id, fact) in facts {
        if !live.contains_key(&id) {
            let name = id.to_string();
            match retried(stop, || Live::load(shared, &name)).await {
                Some(Some(known)) => live.insert(id, known),
                Some(None) => {
                    tracing::warn!(conversation = %id, "a fact of an unknown conversation is dropped");
                    continue;
                }
                None => continue,
            };
        }
        let Some(known) = live.get_mut(&id) else { continue };
        prepared.push(known.prepare(shared, fact));
        if known.view.ended.is_some() {
            live.remove(&id);
            shared.pending.forget(id);
        }
    }
    if prepared.is_empty() {
        return;
    }
    let write = || async {
        let mut tx = shared.store.write().await?;
        let done = write(&mut tx, &shared.server, &prepared).await?;
        tx.commit().await?;
        Ok(done)
    };
    let Some((written, refused)) = retried(stop, write).await else { return };
    for id in refused {
        // It was ended while its connection came up. The engine does not know yet.
        if let Ok(id) = id.parse::<ConversationId>()
            && live.remove(&id).is_some()
            && let Some(host) = shared.host.get().cloned()
        {
            tokio::spawn(async move { host.command(id, Command::End).await });
        }
    }
    for fact in &prepared {
        if let (Change::Begins(_), Ok(id)) = (&fact.change, fact.conversation.parse()) {
            shared.pending.forget(id);
        }
    }
    announce(shared, prepared, &written);
}

/// Does `work` until it succeeds; `None` if the server stops first.
async fn retried<T, F>(stop: &watch::Receiver<bool>, mut work: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = store::Result<T>>,
{
    let mut failed = false;
    loop {
        match work().await {
            Ok(done) => return Some(done),
            Err(error) => {
                if !failed {
                    tracing::error!(%error, "facts cannot be written; trying again");
                }
                // One more try after the stop, then the facts are lost with the process.
                if failed && *stop.borrow() {
                    return None;
                }
                failed = true;
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
