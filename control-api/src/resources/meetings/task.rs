//! Watches the bots of this server: asks their services where they are, enforces the time limits, and
//! removes the bots of conversations that have ended. It continues after a restart with what is
//! stored.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use conversation::event::MeetingStatus;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::accounts::Accounts;
use super::lifecycle::Lifecycle;
use super::overdue::{CREATION_TIMEOUT, Overdue, find_overdue, missing_media};
use crate::clock;
use crate::config::MeetingsConfig;
use crate::meeting_services::{Detail, MeetingService, Report, ServiceError};
use crate::state::meetings::Meetings;
use crate::state::supervise::BackgroundTask;
use crate::store::conversation::{ENDED, STARTED};
use crate::store::meeting::Row;
use crate::store::{self, Lock, meeting};

/// How often a service is asked about a bot that joins, and about one in a meeting.
const JOINING_POLL_INTERVAL: Duration = Duration::from_secs(3);
const IN_CALL_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// How often bots are looked for that nobody watches: those of lost servers, and those whose watch
/// failed.
const SCAN_INTERVAL: Duration = Duration::from_secs(5);
/// How often the conversation of a bot is looked at. Any server may have ended it.
const CONVERSATION_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a bot that was asked to leave may take until it is asked again.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(20);
/// After this number of answers that the bot does not exist, the service has lost it.
const MAX_MISSING: u32 = 3;
/// Delays between attempts to remove a bot.
const MIN_RELEASE_DELAY: Duration = Duration::from_secs(1);
const MAX_RELEASE_DELAY: Duration = Duration::from_secs(60);
/// After this time a bot is given up: its service does not answer.
const MAX_RELEASE_TIME: Duration = Duration::from_secs(24 * 3600);

/// The task that watches bots.
pub(crate) struct MeetingTask {
    pub(crate) server_id: Arc<str>,
    pub(crate) meetings: Arc<Meetings>,
    pub(crate) watch: BotWatch,
}

/// What the watch of one bot needs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct BotWatch {
    pub(crate) lifecycle: Lifecycle,
    pub(crate) accounts: Accounts,
    pub(crate) config: MeetingsConfig,
    pub(crate) meetings: Arc<Meetings>,
}

impl BackgroundTask for MeetingTask {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        let store = self.watch.lifecycle.event_storage.store.clone();
        let mut watches = JoinSet::new();
        let mut watched = HashMap::new();
        loop {
            let found = async {
                store.adopt_meetings(&self.server_id).await?;
                store.open_meetings(&self.server_id).await
            };
            match found.await {
                Ok(ids) => {
                    for id in ids {
                        if watched.values().any(|known| *known == id) {
                            continue;
                        }
                        let (watch, own) = (self.watch.clone(), id.clone());
                        let handle = watches.spawn(async move { watch.run(&own).await });
                        watched.insert(handle.id(), id);
                    }
                }
                Err(error) => tracing::error!(%error, "cannot look for the bots of meetings"),
            }
            tokio::select! {
                () = self.meetings.created.notified() => {}
                () = sleep(SCAN_INTERVAL) => {}
                Some(ended) = watches.join_next_with_id() => {
                    let (task, result) = match ended {
                        Ok((task, result)) => (task, Some(result)),
                        Err(error) => (error.id(), None),
                    };
                    let id = watched.remove(&task).unwrap_or_default();
                    match result {
                        Some(Ok(())) => {}
                        Some(Err(error)) => {
                            tracing::error!(conversation = id, %error, "cannot watch a meeting");
                            sleep(Duration::from_secs(1)).await;
                        }
                        None => tracing::error!(conversation = id, "the watch of a meeting failed"),
                    }
                }
                // A restart continues with what is stored.
                () = async { drop(stop.wait_for(|stop| *stop).await) } => return,
            }
        }
    }
}

impl BotWatch {
    /// Watches a bot until its service has it no more.
    async fn run(&self, id: &str) -> store::Result<()> {
        let store = &self.lifecycle.event_storage.store;
        let mut next_poll = Instant::now() + JOINING_POLL_INTERVAL;
        let (mut is_greeted, mut missing) = (false, 0);
        loop {
            let Some(row) = store.meeting(id).await? else { return Ok(()) };
            let conversation = store.conversation_in_any_workspace(id).await?;
            let conversation = conversation.filter(|conversation| conversation.status != ENDED);
            let Some(conversation) = conversation else { return self.release(&row).await };
            if row.status().is_over() {
                self.lifecycle.end(id, row.detail.as_deref(), None).await?;
                return self.release(&row).await;
            }
            let is_joined = conversation.status != STARTED;
            if let Some(overdue) = find_overdue(&self.config, &row, is_joined, clock::now()) {
                let warning = match overdue {
                    Overdue::NoMedia => Some(missing_media(&conversation)?),
                    _ => None,
                };
                let detail = overdue.detail();
                let status =
                    if detail.is_regular() { MeetingStatus::Left } else { MeetingStatus::Error };
                self.lifecycle.set_status(id, status, Some(detail), warning).await?;
                continue;
            }
            if Instant::now() >= next_poll && !row.bot.is_empty() {
                self.poll(&row, &mut missing).await?;
                let is_in_call = row.status() == MeetingStatus::InCall && missing == 0;
                next_poll = Instant::now()
                    + if is_in_call { IN_CALL_POLL_INTERVAL } else { JOINING_POLL_INTERVAL };
                continue;
            }
            if row.status() == MeetingStatus::InCall && !is_greeted {
                is_greeted = true;
                self.post_message(&row).await?;
            }
            sleep_until(next_poll.min(Instant::now() + CONVERSATION_CHECK_INTERVAL)).await;
        }
    }

    /// Asks the service where the bot is. `missing`: how often it did not know it.
    async fn poll(&self, row: &Row, missing: &mut u32) -> store::Result<()> {
        let id = &row.conversation;
        let Some((provider, service)) = self.accounts.of_bot(row).await? else { return Ok(()) };
        match service.status(&row.bot).await {
            Ok(report) => {
                *missing = 0;
                self.lifecycle.apply(id, report).await
            }
            Err(ServiceError::NotFound) => {
                *missing += 1;
                if *missing < MAX_MISSING {
                    return Ok(());
                }
                tracing::warn!(conversation = %id, provider, "the meeting service lost the bot");
                let (status, detail) = (MeetingStatus::Error, Some(Detail::ServiceError));
                self.lifecycle.set_status(id, status, detail, None).await
            }
            Err(error) => {
                self.meetings.count_failed_request(provider, &error);
                tracing::warn!(conversation = %id, provider, %error, "cannot ask about a bot");
                Ok(())
            }
        }
    }

    /// Posts the message about the agent, where the service did not do so by itself.
    async fn post_message(&self, row: &Row) -> store::Result<()> {
        let store = &self.lifecycle.event_storage.store;
        let Some(conversation) = store.conversation_in_any_workspace(&row.conversation).await?
        else {
            return Ok(());
        };
        let Some(message) = super::order::chat_message(&self.config, &conversation) else {
            return Ok(());
        };
        if let Some((provider, service)) = self.accounts.of_bot(row).await?
            && let Err(error) = service.post_message(&row.bot, &message).await
        {
            self.meetings.count_failed_request(provider, &error);
            let id = &row.conversation;
            tracing::warn!(conversation = %id, provider, %error, "cannot post to the meeting's chat");
        }
        Ok(())
    }

    /// Removes a bot from its meeting and its data from the service, however long that takes.
    async fn release(&self, row: &Row) -> store::Result<()> {
        let id = &row.conversation;
        let since = Instant::now();
        let mut delay = MIN_RELEASE_DELAY;
        // The creation may still have no result.
        let bot = match row.bot.is_empty() {
            true => self.wait_for_creation(row).await?,
            false => Some(row.bot.clone()),
        };
        if let Some(bot) = bot {
            loop {
                let provider = &row.provider;
                match self.accounts.of_bot(row).await? {
                    Some((provider, service)) => {
                        match self.try_release(id, &bot, &*service).await? {
                            Ok(()) => break,
                            Err(error) => {
                                self.meetings.count_failed_request(provider, &error);
                                tracing::warn!(
                                    conversation = %id,
                                    provider,
                                    %error,
                                    "cannot remove a bot"
                                );
                            }
                        }
                    }
                    // The account may come back.
                    None => tracing::error!(
                        conversation = %id,
                        provider,
                        "cannot remove a bot: its account was removed from the configuration"
                    ),
                }
                if since.elapsed() >= MAX_RELEASE_TIME {
                    tracing::error!(conversation = %id, provider, "a bot was given up");
                    break;
                }
                sleep(delay).await;
                delay = MAX_RELEASE_DELAY.min(2 * delay);
            }
        }
        let mut tx = self.lifecycle.event_storage.store.begin_write(Lock::Rows).await?;
        meeting::release(&mut tx, id).await?;
        tx.commit().await
    }

    /// One attempt. The outer error is that of the store.
    async fn try_release(
        &self,
        id: &str,
        bot: &str,
        service: &dyn MeetingService,
    ) -> store::Result<Result<(), ServiceError>> {
        if let Err(error) = service.leave(bot).await {
            return Ok(Err(error));
        }
        let is_over = async {
            let mut missing = 0;
            loop {
                match service.status(bot).await {
                    Ok(report) => {
                        let is_done = matches!(
                            report,
                            Report::Status {
                                status: MeetingStatus::Done | MeetingStatus::Error,
                                ..
                            }
                        );
                        self.lifecycle.apply(id, report).await?;
                        if is_done {
                            return Ok(Ok(()));
                        }
                    }
                    Err(ServiceError::NotFound) => {
                        missing += 1;
                        if missing == MAX_MISSING {
                            return Ok(Ok(()));
                        }
                    }
                    Err(error) => return Ok::<_, store::Error>(Err(error)),
                }
                sleep(CONVERSATION_CHECK_INTERVAL).await;
            }
        };
        match timeout(LEAVE_TIMEOUT, is_over).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => return Ok(Err(error)),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Ok(Err(ServiceError::Malformed("the bot does not leave"))),
        }
        Ok(service.delete_data(bot).await)
    }

    /// The service's id of a bot whose conversation ended while it was created.
    async fn wait_for_creation(&self, row: &Row) -> store::Result<Option<String>> {
        let store = &self.lifecycle.event_storage.store;
        loop {
            let Some(now) = store.meeting(&row.conversation).await? else { return Ok(None) };
            if !now.bot.is_empty() {
                return Ok(Some(now.bot));
            }
            let age = clock::now() - row.created_at;
            if now.released != 0 || age >= clock::to_micros(CREATION_TIMEOUT) {
                return Ok(None);
            }
            sleep(MIN_RELEASE_DELAY).await;
        }
    }
}
