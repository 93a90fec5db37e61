//! From a parsed request to its response: credentials, resource, method, then the read or action.
//!
//! ```text
//!   delay ─ final slash? 308 ─ credentials? 401, 403 ─ resource? 404 ─ method? 405 ─ query? 501 ─► read or action
//! ```

use http::{StatusCode, header};
use tokio::time::Instant;

use super::{
    call::Call,
    faults::FaultEffect,
    journal::RequestKind,
    reply::{ErrorReply, Reply},
    routes::Resource,
    sim_bmc::SimBmc,
};

impl SimBmc {
    pub(super) async fn respond(&self, call: &Call, effect: Option<FaultEffect>) -> Reply {
        match effect {
            Some(FaultEffect::Delay(time)) => tokio::time::sleep(time).await,
            Some(FaultEffect::LoseMedia) => self.lose_media(&mut self.state()),
            _ => {}
        }
        let errors = &self.inner.config.errors;
        if let Some(moved) = self.slash_redirect(call) {
            return moved;
        }
        let resource = match self.admit(call) {
            Ok(resource) => resource,
            Err(refused) => return refused.reply(errors),
        };
        let done = match (call.operation, resource) {
            (operation, _) if operation.is_mutation() && effect == Some(FaultEffect::AcceptButIgnore) => {
                Ok(Reply::no_content())
            }
            (RequestKind::Login, _) => self.login(call),
            (RequestKind::Logout, Resource::Session(id)) => self.logout(call, *id),
            (RequestKind::PatchSystem, resource) => self.patch_system(call, *resource == Resource::Settings),
            (RequestKind::PatchBios, resource) => self.patch_bios(call, resource),
            (RequestKind::Reset, _) => self.reset(call),
            (RequestKind::Update, resource) => self.update(call, resource, effect.as_ref()).await,
            (RequestKind::Configure, resource @ Resource::UpdateService) => {
                self.update(call, resource, None).await
            }
            (RequestKind::ResetManager, _) => self.reset_manager(call),
            (RequestKind::Insert, Resource::Insert(tree, slot)) => self.insert(call, *tree, *slot).await,
            (RequestKind::Eject, Resource::Eject(tree, slot)) => self.eject(call, *tree, *slot),
            (
                RequestKind::Insert | RequestKind::Eject | RequestKind::Configure,
                Resource::Slot(tree, slot),
            ) => self.patch_slot(call, *tree, *slot).await,
            (RequestKind::Insert | RequestKind::Eject | RequestKind::Configure, Resource::Oem(oem)) => {
                self.oem(call, *oem).await
            }
            _ => {
                let serial = match &effect {
                    Some(FaultEffect::WrongSerial(serial)) => serial,
                    _ => &self.inner.config.serial,
                };
                let query = call.query.as_deref();
                self.view(serial, |view| view.show(resource, query))
                    .ok_or_else(|| ErrorReply::not_found(&call.path))
            }
        };
        done.unwrap_or_else(|refused| refused.reply(errors))
    }

    /// The redirect of a vendor whose paths end with a slash, when the request path does not.
    fn slash_redirect(&self, call: &Call) -> Option<Reply> {
        if !self.inner.config.service.slash_redirect || call.path.ends_with('/') || call.path == "/redfish" {
            return None;
        }
        // The paths of uploads are outside of the service and have no final slash.
        if matches!(call.resource, Some(Resource::UpdateMultipart | Resource::UpdatePush)) {
            return None;
        }
        let reply = Reply::empty(StatusCode::PERMANENT_REDIRECT);
        Some(reply.with(header::LOCATION, &format!("{}/", call.path)))
    }

    /// Checks credentials, then path, method and query: a client without credentials cannot find out which paths exist.
    fn admit<'a>(&self, call: &'a Call) -> Result<&'a Resource, ErrorReply> {
        let config = &self.inner.config;
        let is_open = call.resource.as_ref().is_some_and(|resource| resource.is_open(&call.method));
        let now = Instant::now();
        let mut state = self.state();
        state.sessions.prune(config, now);
        if !is_open {
            state.sessions.authenticate(config, call, now)?;
            let is_session = matches!(call.resource, Some(Resource::Session(_)));
            if config.session.password_change_required && !is_session {
                return Err(password_change_required());
            }
        }
        let slots = state.slots_there(config, self.elapsed());
        drop(state);
        if let Some(fixed) =
            config.service.fixed_status.iter().find(|fixed| call.path.ends_with(fixed.ends_with.as_str()))
        {
            let status = StatusCode::from_u16(fixed.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return Err(ErrorReply::new(status, "InternalError", "This resource is not available."));
        }
        let there = |resource: &&Resource| resource.slot().is_none_or(|slot| slot < slots);
        let resource =
            call.resource.as_ref().filter(there).ok_or_else(|| ErrorReply::not_found(&call.path))?;
        let methods = resource.methods(config);
        if !methods.contains(&call.method) {
            let allow: Vec<&str> = methods.iter().map(http::Method::as_str).collect();
            return Err(ErrorReply::method_not_allowed(&allow.join(", ")));
        }
        if call.header("odata-version").is_some_and(|version| version != "4.0") {
            return Err(ErrorReply::new(
                StatusCode::PRECONDITION_FAILED,
                "HeaderInvalid",
                "Header 'OData-Version' is invalid.",
            ));
        }
        for pair in call.query.as_deref().unwrap_or_default().split('&') {
            let known = match pair.split('=').next().unwrap_or_default() {
                "$expand" => config.service.expand,
                "$skip" => config.service.page.is_some(),
                name => !name.starts_with('$'),
            };
            if !known {
                return Err(ErrorReply::new(
                    StatusCode::NOT_IMPLEMENTED,
                    "QueryNotSupported",
                    "Querying is not supported by the implementation.",
                )
                .args(&[pair]));
            }
        }
        Ok(resource)
    }
}

fn password_change_required() -> ErrorReply {
    const ACCOUNT: &str = "/redfish/v1/AccountService/Accounts/1";
    ErrorReply::new(
        StatusCode::FORBIDDEN,
        "PasswordChangeRequired",
        format!("The password provided for this account must be changed before access is granted. PATCH the 'Password' property for this account located at the target URI '{ACCOUNT}' to complete this process."),
    )
    .args(&[ACCOUNT])
}
