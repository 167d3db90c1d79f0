//! The tools: what a support desk's agent can do.

use serde::{Deserialize, Serialize};
use tower_tool::error::ResultExt as _;
use tower_tool::schemars::{self, JsonSchema};
use tower_tool::{
    CallContext, Clock, Receipt, Risk, SpecError, Timestamp, Tool, ToolError, ToolSpec, WithReceipt, tool_fn,
};

use crate::serials::{Tickets, date};

/// One day.
const DAY: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);

/// What a model is told of text that is there and says nothing.
const BLANK: Hint = Hint { pattern: "write more than blanks" };

/// Hints by the keyword of the schema that is violated.
#[derive(Serialize)]
struct Hint {
    pattern: &'static str,
}

#[derive(Deserialize, JsonSchema)]
struct GetOrderStatus {
    /// The order number as the customer gives it, such as A-1024.
    #[schemars(length(min = 1, max = 32))]
    order_id: String,
}

#[derive(Serialize, JsonSchema)]
struct OrderStatus {
    /// The number that was asked for.
    order_id: String,
    status: Status,
    /// The day it should arrive, if it is on its way.
    eta: Option<String>,
    /// What to tell the customer, where there is more to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Packing,
    Shipped,
    Delivered,
    NotFound,
}

fn order_status(order_id: String, now: Timestamp) -> OrderStatus {
    let (status, days) = match order_id.as_str() {
        "A-1024" => (Status::Shipped, Some(1)),
        "A-2048" => (Status::Packing, Some(3)),
        "B-0001" => (Status::Delivered, None),
        _ => (Status::NotFound, None),
    };
    let note = matches!(status, Status::NotFound).then(|| {
        "There is no order with this number. Do not guess: ask the customer to check the number on the order \
         confirmation, then look it up again."
            .to_owned()
    });
    OrderStatus { order_id, status, eta: days.map(|days| date(now + DAY * days)), note }
}

fn get_order_status(clock: impl Clock) -> Result<Tool, SpecError> {
    Ok(tool_fn(
        ToolSpec::builder("get_order_status")
            .description(
                "Look up where an order is. Use it when the customer asks about an order and gives its number. Not for \
                 complaints or changes, and not without a number: ask for it first.",
            )
            .risk(Risk::PrivateRead)
            .input::<GetOrderStatus>()
            .output::<OrderStatus>()
            .build()?,
        move |args: GetOrderStatus, _cx: CallContext| {
            let status = order_status(args.order_id, clock.now());
            async move { Ok(status) }
        },
    ))
}

#[derive(Deserialize, JsonSchema)]
struct CreateTicket {
    /// What the ticket is about, in one line.
    #[schemars(length(min = 1, max = 120), regex(pattern = r"\S"), extend("errorMessage" = BLANK))]
    subject: String,
    /// What happened, what the customer expected, and the order number if there is one.
    #[schemars(length(min = 1, max = 4000), regex(pattern = r"\S"), extend("errorMessage" = BLANK))]
    description: String,
}

#[derive(Serialize, JsonSchema)]
struct Opened {
    /// The ticket's number.
    ticket_id: String,
    subject: String,
    description: String,
    /// When it was opened, in UTC.
    created_at: Timestamped,
}

fn create_ticket(tickets: Tickets) -> Result<Tool, SpecError> {
    Ok(tool_fn(
        ToolSpec::builder("create_ticket")
            .description(
                "Open a support ticket. Use it when the customer reports a problem that cannot be answered at once. Not \
                 for questions about an order or an existing ticket, and not twice for the same problem.",
            )
            .risk(Risk::ReversibleWrite)
            .input::<CreateTicket>()
            .output::<Opened>()
            .build()?,
        move |args: CreateTicket, _cx: CallContext| {
            let tickets = tickets.clone();
            async move {
                let (ticket_id, at) = numbered(tickets).await?;
                let receipt = Receipt::new()
                    .with_external_id("ticket", &ticket_id)
                    .with_undo(format!("ask a person at the desk to close {ticket_id} as opened by mistake"));
                let CreateTicket { subject, description } = args;
                Ok(WithReceipt::new(Opened { ticket_id, subject, description, created_at: at.into() }, receipt))
            }
        },
    ))
}

#[derive(Deserialize, JsonSchema)]
struct EscalateToHuman {
    /// Why a person has to take over, in one or two sentences.
    #[schemars(length(min = 1, max = 400), regex(pattern = r"\S"), extend("errorMessage" = BLANK))]
    reason: String,
    /// The conversation so far, so that the customer need not tell it again.
    #[schemars(length(min = 1, max = 20_000), regex(pattern = r"\S"), extend("errorMessage" = BLANK))]
    transcript: String,
}

#[derive(Serialize, JsonSchema)]
struct HandOff {
    /// The number under which a person finds the case.
    ticket_id: String,
    reason: String,
    transcript: String,
    /// When it was handed over, in UTC.
    created_at: Timestamped,
}

fn escalate_to_human(tickets: Tickets) -> Result<Tool, SpecError> {
    Ok(tool_fn(
        ToolSpec::builder("escalate_to_human")
            .description(
                "Hand the conversation over to a person. Use it when the customer asks for one, is in distress, or needs \
                 something that no tool here does. Not because a lookup found nothing.",
            )
            // Somebody's attention is asked for; it can be given back.
            .risk(Risk::ReversibleWrite)
            .input::<EscalateToHuman>()
            .output::<HandOff>()
            .build()?,
        move |args: EscalateToHuman, _cx: CallContext| {
            let tickets = tickets.clone();
            async move {
                let (ticket_id, at) = numbered(tickets).await?;
                let receipt = Receipt::new()
                    .with_external_id("ticket", &ticket_id)
                    .with_undo(format!("ask a person at the desk to hand {ticket_id} back"));
                let EscalateToHuman { reason, transcript } = args;
                Ok(WithReceipt::new(HandOff { ticket_id, reason, transcript, created_at: at.into() }, receipt))
            }
        },
    ))
}

/// A number of its own. Should writing it down have failed half way, a number may be missing, and none is given twice.
async fn numbered(tickets: Tickets) -> Result<(String, Timestamp), ToolError> {
    let given = tokio::task::spawn_blocking(move || tickets.next()).await.not_done()?;
    given.not_done()
}

/// A moment in a result, with the schema that says so.
#[derive(Serialize)]
#[serde(transparent)]
struct Timestamped(Timestamp);

impl From<Timestamp> for Timestamped {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

impl JsonSchema for Timestamped {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// All tools, in the order in which a model sees them.
pub(crate) fn all(clock: impl Clock, tickets: &Tickets) -> Result<[Tool; 3], SpecError> {
    Ok([get_order_status(clock)?, create_ticket(tickets.clone())?, escalate_to_human(tickets.clone())?])
}

#[cfg(test)]
mod tests {
    use tower_tool_test::FakeClock;

    use super::*;

    #[test]
    fn what_is_not_found_says_so_and_names_no_day() {
        let now = FakeClock::new().now();
        let told = |id: &str| serde_json::to_value(order_status(id.to_owned(), now)).unwrap();
        assert_eq!(told("A-1024")["status"], "shipped");
        assert_eq!(told("A-1024")["eta"], "2026-12-01");
        assert_eq!(told("A-2048")["status"], "packing");
        assert_eq!(told("B-0001")["status"], "delivered");
        assert_eq!(told("B-0001")["eta"], serde_json::Value::Null);
        for unknown in ["A-1025", "a-1024", "A-1024 "] {
            let told = told(unknown);
            assert_eq!((&told["status"], &told["eta"]), (&"not_found".into(), &serde_json::Value::Null));
            assert!(told["note"].as_str().unwrap().contains("check the number"));
        }
    }
}
