//! Which account at a meeting service a workspace uses.

use std::sync::Arc;

use crate::config::MeetingsConfig;
use crate::meeting_services::{self, MeetingService, SERVICES, ServiceAccount};
use crate::state::AppState;
use crate::state::meetings::{Meetings, WebhookAccount};
use crate::store::meeting::{Row, SERVER_ACCOUNT, WORKSPACE_ACCOUNT};
use crate::store::vault::Vault;
use crate::store::{self, Store};

/// Finds accounts and connects to them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Accounts {
    store: Store,
    vault: Arc<Vault>,
    config: MeetingsConfig,
    http_client: egress::Client,
    meetings: Arc<Meetings>,
}

impl Accounts {
    pub(crate) fn of(state: &AppState) -> Self {
        Self {
            store: state.store.clone(),
            vault: Arc::clone(&state.vault),
            config: state.config.meetings.clone(),
            http_client: state.http_client.clone(),
            meetings: Arc::clone(&state.meetings),
        }
    }

    /// The account of a workspace, and whose it is: its own credential, else that of the operator.
    pub(super) async fn find(
        &self,
        workspace: &str,
    ) -> store::Result<Option<(ServiceAccount, &'static str)>> {
        for (provider, _) in SERVICES {
            if let Some(account) = self.of_workspace(workspace, provider).await? {
                return Ok(Some((account, WORKSPACE_ACCOUNT)));
            }
        }
        Ok(self.of_server().map(|account| (account, SERVER_ACCOUNT)))
    }

    /// The credential of a workspace for a service.
    pub(super) async fn of_workspace(
        &self,
        workspace: &str,
        provider: &'static str,
    ) -> store::Result<Option<ServiceAccount>> {
        let credentials = self.store.credentials(&self.vault, workspace).await?;
        Ok(credentials.get(provider).map(|credential| ServiceAccount {
            provider,
            url: credential.url.clone(),
            key: credential.token.clone(),
            webhook_secret: credential.webhook_secret.clone(),
            callback_secret: self.callback_secret(provider, Some(workspace)),
        }))
    }

    /// The account of the operator's configuration.
    pub(super) fn of_server(&self) -> Option<ServiceAccount> {
        let name = self.config.provider.as_deref()?;
        let (provider, _) = SERVICES.into_iter().find(|(known, _)| *known == name)?;
        Some(ServiceAccount {
            provider,
            url: self.config.url.clone(),
            key: self.config.key.clone()?,
            webhook_secret: self.config.webhook_secret.clone(),
            callback_secret: self.callback_secret(provider, None),
        })
    }

    fn callback_secret(&self, provider: &str, workspace: Option<&str>) -> String {
        self.meetings.callback_secret(&WebhookAccount {
            provider: provider.to_owned(),
            workspace: workspace.map(str::to_owned),
        })
    }

    /// The adapter of an account. Only the operator's may be at a private address.
    pub(super) fn connect(
        &self,
        account: &ServiceAccount,
        owner: &str,
    ) -> Option<Box<dyn MeetingService>> {
        let client = if owner == SERVER_ACCOUNT {
            self.http_client.trusted()
        } else {
            self.http_client.clone()
        };
        meeting_services::connect(account, client)
    }

    /// The service of a bot; `None` if its account was removed.
    pub(crate) async fn of_bot(
        &self,
        row: &Row,
    ) -> store::Result<Option<(&'static str, Box<dyn MeetingService>)>> {
        let known = SERVICES.into_iter().find(|(known, _)| *known == row.provider);
        let Some((provider, _)) = known else { return Ok(None) };
        let account = if row.account == SERVER_ACCOUNT {
            self.of_server().filter(|account| account.provider == provider)
        } else {
            self.of_workspace(&row.workspace, provider).await?
        };
        Ok(account
            .and_then(|account| self.connect(&account, &row.account))
            .map(|service| (provider, service)))
    }
}
