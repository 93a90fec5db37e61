//! Prepares and starts an update.
//!
//! ```text
//!   prepare_update   service again (busy? enabled?), tasks (one runs?)       -> PreparedUpdate, to be stored
//!   start_update     SimpleUpdate {ImageURI …} | multipart form | HttpPushUri -> Accepted | MaybeAccepted
//!   start_uploaded   StartUpdate | SimpleUpdate of the stored image           -> Accepted | MaybeAccepted
//!        Err          it is certain that the BMC has no complete image and starts nothing: it may be started again
//! ```
//!
//! Invariant: one call sends one image at most once. A request is repeated only where its JSON body was refused with 400 for
//! a missing member, which proves that nothing was started.
//! Specification: DSP0268 UpdateService, DSP0266 (multipart HTTP push updates), DSP2062.

use http::Method;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::io::AsyncRead;

use crate::bmc::Bmc;
use crate::credentials::RequestAuth;
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::exchange::{BmcResponse, Call};
use crate::profile::{ImageUri, PushBody};
use crate::update::accepted::Accepted;
use crate::update::choice::{self, Choice, UpdateRoute};
use crate::update::form::{Form, file_name};
use crate::update::handle::{
    PreparedUpdate, PushOptions, SecondRequest, StagedUpload, StoredFormat, UpdateHandle, UpdateRequest,
    UpdateStart, task_id,
};
use crate::update::send::{Upload, session_cookie};
use crate::update::service::{ApplyTime, UpdateCapability};
use crate::upload::UploadProgress;

const OPERATION: Operation = Operation::Update;

/// The image of an update.
pub enum UpdateImage<'a> {
    /// The BMC reads the image from this URL, which is not stored and not shown.
    Url(&'a str),
    /// The image is uploaded from this stream, of which exactly `length` bytes are sent. Its checksum was verified before.
    Stream {
        /// The bytes of the image.
        image: Box<dyn AsyncRead + Send + Sync + Unpin>,
        /// The number of bytes.
        length: u64,
    },
}

impl Bmc {
    /// Reads the service once more and the list of tasks, and returns what must be stored before the update is started.
    ///
    /// # Errors
    ///
    /// `Busy` when another update or upload runs; `NotSupported` when the service is disabled; else when a read fails.
    pub async fn prepare_update(
        &self,
        service: &UpdateCapability,
        choice: Choice,
        request: &UpdateRequest,
    ) -> Result<PreparedUpdate, RedfishError> {
        const READ: Operation = Operation::UpdateService;
        let core = &self.core;
        let now = UpdateCapability::of(&core.read(READ, &service.uri).await?);
        if !now.enabled {
            return Err(RedfishError::not_supported(READ, "the update service is disabled (ServiceEnabled)"));
        }
        let busy = |message: String| {
            let kind = ErrorKind::Busy { status: 200, message_id: None, message, retry_after: None };
            Err(RedfishError::new(READ, kind).at(&Method::GET, &service.uri))
        };
        if let Some(message) = now.busy {
            return busy(message);
        }
        let tasks = match &service.task_service {
            Some(tasks) => core.task_paths(READ, tasks).await?,
            None => None,
        };
        // Some BMCs have no flag for it, and start a second update beside the first.
        if let Some(message) = core.running_update(READ, tasks.as_deref().unwrap_or_default()).await? {
            return busy(message);
        }
        let profile = core.profile();
        let apply_time = choice::apply_time(service, &profile, &choice.route, request.apply_time);
        let start = service.start.clone().filter(|_| apply_time == Some(ApplyTime::OnStartUpdateRequest));
        if apply_time == Some(ApplyTime::OnStartUpdateRequest) && start.is_none() {
            let what = "OnStartUpdateRequest, because the BMC has no action StartUpdate";
            return Err(RedfishError::not_supported(OPERATION, what));
        }
        let staged = match &choice.route {
            UpdateRoute::Push { target, then: Some(then), .. } => Some(StagedUpload {
                collection: target.clone(),
                before: core.stored_images(READ, target).await?,
                target: then.clone(),
                apply_time,
            }),
            _ => None,
        };
        Ok(PreparedUpdate {
            format: StoredFormat,
            service: service.uri.clone(),
            file_name: file_name(&request.file_name),
            targets: choice::targets(service, &profile, &choice.route, &request.targets),
            apply_time,
            force: request.force,
            push_options: PushOptions {
                apply_time: service.push_apply_times.is_some(),
                targets: service.push_targets,
            },
            start,
            state_at_service: choice::state_at_service(&profile),
            task_service: service.task_service.clone().filter(|_| tasks.is_some()),
            tasks_before: tasks.into_iter().flatten().map(|path| task_id(&path)).collect(),
            staged,
            choice,
        })
    }

    /// Starts an update that was prepared and stored. `progress` shows how much of an upload was sent, also while it runs.
    ///
    /// # Errors
    ///
    /// Every error means that the BMC has no complete image and started nothing: `Refused` when it refuses the image or the
    /// request, `Busy` when the update is possible later, `Config` when the image does not fit the route or cannot be read
    /// to its length, `Fenced` when the sender lost the server before the last byte.
    pub async fn start_update(
        &self,
        update: &PreparedUpdate,
        image: UpdateImage<'_>,
        progress: &UploadProgress,
    ) -> Result<UpdateStart, RedfishError> {
        match (&update.choice.route, image) {
            (UpdateRoute::Simple { target, protocol, names_protocol, uri }, UpdateImage::Url(url)) => {
                let mut body = json!({ "ImageURI": image_uri(url, *uri) });
                if *names_protocol {
                    body["TransferProtocol"] = protocol.as_str().into();
                }
                self.simple_update(update, target, body, protocol, url).await
            }
            (UpdateRoute::Multipart { target }, UpdateImage::Stream { image, length }) => {
                let mut form = Form::new().text(
                    "UpdateParameters",
                    Some("application/json"),
                    &parameters(update).to_string(),
                );
                let oem = self.core.profile().update_oem_parameters.clone();
                if !oem.is_empty() {
                    let oem = Value::from(oem).to_string();
                    form = form.text("OemParameters", Some("application/json"), &oem);
                }
                let (head, tail, content_type) = form.image("UpdateFile", &update.file_name);
                let target = target.clone();
                let upload =
                    Upload { target, head, tail, content_type, if_match: None, cookie: None, image, length };
                let auth = self.fresh_auth(update).await?;
                self.upload(update, upload, &auth, progress).await
            }
            (UpdateRoute::Push { target, body, .. }, UpdateImage::Stream { image, length }) => {
                self.push(update, target, *body, (image, length), progress).await
            }
            (route, _) => {
                let detail = format!("the image does not fit the way {}", route.way().as_str());
                Err(RedfishError::new(OPERATION, ErrorKind::Config { detail }))
            }
        }
    }

    async fn push(
        &self,
        update: &PreparedUpdate,
        target: &str,
        body: PushBody,
        (image, length): (Box<dyn AsyncRead + Send + Sync + Unpin>, u64),
        progress: &UploadProgress,
    ) -> Result<UpdateStart, RedfishError> {
        let (auth, mut if_match, mut cookie) = (self.fresh_auth(update).await?, None, None);
        let (head, tail, content_type) = match body {
            PushBody::Raw => {
                self.set_push_options(update).await?;
                (Default::default(), Default::default(), "application/octet-stream".to_owned())
            }
            PushBody::SessionForm => {
                let RequestAuth::Token(session) = &auth else {
                    let what = "this upload demands a session, and the BMC accepts Basic authentication only";
                    return Err(RedfishError::not_supported(OPERATION, what));
                };
                let token = session.token.expose_secret();
                cookie = session_cookie(token);
                let members = json!({ "UpdateRepository": false, "UpdateTarget": true, "ETag": "shoal" });
                Form::new()
                    .text("sessionKey", None, token)
                    .text("parameters", Some("application/json"), &members.to_string())
                    .image("files[]", &update.file_name)
            }
            PushBody::StagedForm => {
                // The upload adds a member to this collection, so the BMC demands its ETag.
                if_match = self.core.read(OPERATION, target).await?.etag;
                Form::new().image("file", &update.file_name)
            }
        };
        let target = target.to_owned();
        let upload = Upload { target, head, tail, content_type, if_match, cookie, image, length };
        self.upload(update, upload, &auth, progress).await
    }

    /// Writes apply time and targets to the service, which an upload without parameters takes from there.
    async fn set_push_options(&self, update: &PreparedUpdate) -> Result<(), RedfishError> {
        let mut body = json!({});
        if let Some(time) = update.apply_time.filter(|_| update.push_options.apply_time) {
            body["HttpPushUriOptions"] = json!({ "HttpPushUriApplyTime": { "ApplyTime": time.as_str() } });
        }
        if let Some(targets) = update.targets.as_ref().filter(|_| update.push_options.targets) {
            body["HttpPushUriTargets"] = json!(targets);
        }
        if body.as_object().is_none_or(serde_json::Map::is_empty) {
            return Ok(());
        }
        let service = self.core.read(OPERATION, &update.service).await?;
        let deadline = self.core.profile().mutation_timeout;
        let response = self.core.patch(OPERATION, &service, &body, deadline, Some(&update.service)).await?;
        if response.status.is_success() {
            Ok(())
        } else {
            Err(certain(self.core.refusal(OPERATION, &response, &[])))
        }
    }

    /// A credential that was accepted just now, because an upload cannot be repeated after a 401.
    async fn fresh_auth(&self, update: &PreparedUpdate) -> Result<RequestAuth, RedfishError> {
        self.core.read(OPERATION, &update.service).await?;
        self.core.request_auth().await
    }

    async fn upload(
        &self,
        update: &PreparedUpdate,
        upload: Upload,
        auth: &RequestAuth,
        progress: &UploadProgress,
    ) -> Result<UpdateStart, RedfishError> {
        let response = match self.core.upload(upload, auth, progress).await {
            Ok(response) => response,
            Err(error) => return unclear(update.handle(), error),
        };
        if !response.status.is_success() {
            let error = self.core.upload_refused(&response, progress.is_complete(), &[]);
            return unclear(update.handle(), error);
        }
        Ok(UpdateStart::Accepted(accepted(update, &response)))
    }

    async fn simple_update(
        &self,
        update: &PreparedUpdate,
        target: &str,
        mut body: Value,
        protocol: &str,
        url: &str,
    ) -> Result<UpdateStart, RedfishError> {
        if let (Some(body), Value::Object(members)) = (body.as_object_mut(), parameters(update)) {
            body.extend(members);
        }
        loop {
            let response = match self.post(target, &body).await {
                Ok(response) => response,
                Err(error) => return unclear(update.handle(), error),
            };
            if response.status.is_success() {
                return Ok(UpdateStart::Accepted(accepted(update, &response)));
            }
            let missing = response.is(&[400]) && response.error().names("TransferProtocol");
            if missing && body.get("TransferProtocol").is_none() {
                body["TransferProtocol"] = protocol.into();
                continue;
            }
            let bare = image_uri(url, ImageUri::WithoutScheme);
            return unclear(update.handle(), self.core.upload_refused(&response, true, &[url, bare]));
        }
    }

    /// Sends the second request of an update whose image was uploaded and checked (state `Uploaded`).
    ///
    /// # Errors
    ///
    /// Every error means that the update was not started; `Config` when the update needs no second request.
    pub async fn start_uploaded(&self, handle: &UpdateHandle) -> Result<UpdateStart, RedfishError> {
        let (target, body) = match &handle.then {
            Some(SecondRequest::StartUpdate { target }) => (target, json!({})),
            Some(SecondRequest::SimpleUpdate { target, image, apply_time }) => {
                let mut body = json!({ "ImageURI": image });
                if let Some(time) = apply_time {
                    body["@Redfish.OperationApplyTime"] = time.as_str().into();
                }
                (target, body)
            }
            None => {
                let detail = "this update was started by its upload".to_owned();
                return Err(RedfishError::new(OPERATION, ErrorKind::Config { detail }));
            }
        };
        let next = handle.after_start();
        let response = match self.post(target, &body).await {
            Ok(response) => response,
            Err(error) => return unclear(next, error),
        };
        if !response.status.is_success() {
            return unclear(next, self.core.upload_refused(&response, true, &[]));
        }
        let named = Accepted::of(&response);
        Ok(UpdateStart::Accepted(UpdateHandle { monitor: named.monitor, task: named.task, ..next }))
    }

    async fn post(&self, target: &str, body: &Value) -> Result<BmcResponse, RedfishError> {
        let deadline = self.core.profile().mutation_timeout;
        let call = Call::mutation(OPERATION, Method::POST, target, deadline).body(body);
        self.core.perform(&call, 1).await
    }
}

/// The image as `SimpleUpdate` names it.
fn image_uri(url: &str, uri: ImageUri) -> &str {
    match uri {
        ImageUri::Url => url,
        ImageUri::WithoutScheme => url.split_once("://").map_or(url, |(_, rest)| rest),
    }
}

/// The parameters of an update: of `UpdateParameters` and of `SimpleUpdate`.
fn parameters(update: &PreparedUpdate) -> Value {
    let mut members = json!({});
    if let Some(targets) = &update.targets {
        members["Targets"] = json!(targets);
    }
    if let Some(time) = update.apply_time {
        members["@Redfish.OperationApplyTime"] = time.as_str().into();
    }
    if update.force {
        members["ForceUpdate"] = true.into();
    }
    members
}

/// The handle after an accepted start.
fn accepted(update: &PreparedUpdate, response: &BmcResponse) -> UpdateHandle {
    let named = Accepted::of(response);
    let then = update.second(named.other);
    UpdateHandle { monitor: named.monitor, task: named.task, then, ..update.handle() }
}

/// Sorts an error: one that leaves open whether the image was accepted becomes a result that is not an error.
fn unclear(handle: UpdateHandle, error: RedfishError) -> Result<UpdateStart, RedfishError> {
    match error.maybe_applied {
        true => Ok(UpdateStart::MaybeAccepted { handle, error: Box::new(error) }),
        false => Err(error),
    }
}

/// An error before the image was sent: nothing of the update was started, whatever happened to the request.
fn certain(error: RedfishError) -> RedfishError {
    RedfishError { maybe_applied: false, ..error }
}
