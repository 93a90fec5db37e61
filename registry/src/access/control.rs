//! Users and a policy, put together: whoever logs in with a name and a password, or with a token the authenticator knows.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;

use super::credentials::Credentials;
use super::policy::{Policy, Request, Subject, decide};
use super::{Access, Action, Authorizer, BASIC, Caller, Denied};
use crate::name::{RepositoryName, Tag};

/// Knows who somebody is: [`Htpasswd`](super::Htpasswd), or the users of the embedding program.
#[async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// Who shows these credentials. [`Denied::Unauthorized`] when they are nobody's, [`Denied::Unavailable`] when that
    /// cannot be found out now, or may not be tried again yet.
    async fn authenticate(&self, credentials: &Credentials, caller: Caller<'_>) -> Result<Subject, Denied>;

    /// Who that is by now whom a token was made for: asked at each use of the token, so that what was taken away since
    /// need not wait for the token's end. By default the same as then.
    async fn refresh(&self, subject: Subject) -> Result<Subject, Denied> {
        Ok(subject)
    }
}

/// Lets those in whom an [`Authenticator`] knows, and lets them do what a [`Policy`] says.
pub struct AccessControl {
    users: Arc<dyn Authenticator>,
    policy: RwLock<Arc<Policy>>,
}

impl AccessControl {
    /// With these users and this policy.
    pub fn new(users: Arc<dyn Authenticator>, policy: Policy) -> Self {
        AccessControl { users, policy: RwLock::new(Arc::new(policy)) }
    }

    /// Changes the policy, for requests that come from now on.
    pub fn set_policy(&self, policy: Policy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who asks. Wrong credentials are refused also where none are needed: their owner should know.
    pub(super) async fn subject(&self, caller: Caller<'_>) -> Result<Subject, Denied> {
        let Some(header) = caller.authorization else { return Ok(Subject::Anonymous) };
        let credentials = Credentials::parse(header).ok_or(Denied::Unauthorized)?;
        self.authenticate(&credentials, caller).await
    }

    pub(super) async fn authenticate(
        &self,
        credentials: &Credentials,
        caller: Caller<'_>,
    ) -> Result<Subject, Denied> {
        self.users.authenticate(credentials, caller).await
    }

    /// Who the one a token was made for is by now.
    pub(super) async fn refresh(&self, subject: Subject) -> Result<Subject, Denied> {
        match subject {
            Subject::Anonymous => Ok(subject),
            known => self.users.refresh(known).await,
        }
    }

    /// What the policy says to one who is known, or to nobody in particular.
    pub(super) fn judge(&self, subject: &Subject, access: Access<'_>) -> Result<(), Denied> {
        let policy = self.policy();
        let allowed = match access.repository {
            None => *subject != Subject::Anonymous || policy.allows_anonymous(),
            Some(repository) => {
                let request = Request { repository, action: access.action, tag: None };
                let decision = decide(&policy, subject, &request);
                tracing::debug!(%subject, %repository, action = ?access.action, %decision, "access decided");
                decision.allowed
            }
        };
        match subject {
            _ if allowed => Ok(()),
            Subject::Anonymous => Err(Denied::Unauthorized),
            Subject::User { .. } | Subject::Puller { .. } => Err(Denied::Forbidden),
        }
    }

    pub(super) fn readable_by<'r>(
        &self,
        subject: &Subject,
        repositories: &[&'r RepositoryName],
    ) -> Vec<&'r RepositoryName> {
        let policy = self.policy();
        let may_read = |repository: &&&RepositoryName| {
            let request = Request { repository, action: Action::Pull, tag: None };
            decide(&policy, subject, &request).allowed
        };
        repositories.iter().filter(may_read).copied().collect()
    }
}

#[async_trait]
impl Authorizer for AccessControl {
    async fn authorize(&self, caller: Caller<'_>, access: Access<'_>) -> Result<(), Denied> {
        self.judge(&self.subject(caller).await?, access)
    }

    async fn readable<'r>(
        &self,
        caller: Caller<'_>,
        repositories: &[&'r RepositoryName],
    ) -> Vec<&'r RepositoryName> {
        match self.subject(caller).await {
            Ok(subject) => self.readable_by(&subject, repositories),
            Err(_) => Vec::new(),
        }
    }

    fn immutable(&self, repository: &RepositoryName, tag: &Tag) -> bool {
        self.policy().is_immutable(repository, tag)
    }

    async fn identify(&self, caller: Caller<'_>) -> Option<String> {
        self.subject(caller).await.ok()?.into_name()
    }

    fn invitation(&self, _caller: Caller<'_>) -> Option<String> {
        Some(BASIC.to_owned())
    }
}
