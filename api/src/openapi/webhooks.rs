//! The operations on outgoing webhooks.

use super::super::error_code::ErrorCode;
use super::super::webhooks::{create as webhook_create, dead_letters, switch, test, view as webhook};
use super::operation::{ApiOperation, delete, get, post};

/// The operations, in the order of the table of routes.
pub(super) fn webhooks() -> Vec<ApiOperation> {
    const WEBHOOKS: (&str, &str) = ("webhooks", "/api/v1/webhooks");
    const WEBHOOK: (&str, &str) = ("webhooks", "/api/v1/webhooks/{id}");
    vec![
        post(WEBHOOKS, "createWebhook", "Create a webhook, which receives every later event")
            .for_admins()
            .body::<webhook_create::Request>()
            .returns::<webhook::WebhookView>(201, "The webhook is created.")
            .errors(&[ErrorCode::ConflictWebhooks]),
        get(WEBHOOKS, "listWebhooks", "List all webhooks")
            .returns::<webhook::WebhookPage>(200, "All webhooks."),
        get(WEBHOOK, "getWebhook", "Show a webhook with its retry streams")
            .of_webhook()
            .returns::<webhook::WebhookDetailView>(200, "The webhook."),
        delete(WEBHOOK, "deleteWebhook", "Delete a webhook with its undelivered events")
            .for_admins()
            .of_webhook()
            .returns_nothing(204, "The webhook is deleted."),
        get(
            ("webhooks", "/api/v1/webhooks/{id}/dead-letters"),
            "listDeadLetters",
            "List the dead letters of a webhook",
        )
        .of_webhook()
        .page_size(100, 1000)
        .returns::<webhook::DeadLetterPage>(200, "The dead letters in the order of the log."),
        post(
            ("webhooks", "/api/v1/webhooks/{id}/dead-letters/redeliver"),
            "redeliver",
            "Send dead letters again",
        )
        .for_admins()
        .of_webhook()
        .optional_body::<dead_letters::Request>()
        .returns::<webhook::RedeliveryView>(202, "The dead letters are queued.")
        .errors(&[ErrorCode::UnknownDeadLetter]),
        post(("webhooks", "/api/v1/webhooks/{id}/disable"), "disableWebhook", "Disable a webhook")
            .for_admins()
            .of_webhook()
            .optional_body::<switch::Request>()
            .returns::<webhook::WebhookView>(200, "The webhook is disabled; its events are kept."),
        post(("webhooks", "/api/v1/webhooks/{id}/enable"), "enableWebhook", "Enable a webhook")
            .for_admins()
            .of_webhook()
            .returns::<webhook::WebhookView>(200, "The webhook continues after the last delivered event."),
        post(("webhooks", "/api/v1/webhooks/{id}/test"), "testWebhook", "Send one test delivery")
            .for_admins()
            .of_webhook()
            .returns::<test::WebhookTestView>(200, "What the receiver responded; the test may have failed."),
    ]
}
