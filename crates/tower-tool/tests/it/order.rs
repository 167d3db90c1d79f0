//! The order in a `ServiceBuilder` is the order of interception, and an order that is known to be wrong is refused.

use std::num::NonZeroU32;
use std::time::Duration;

use serde_json::json;
use tower::ServiceBuilder;
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::retry::{Policy, RetryLayer};
use tower::timeout::TimeoutLayer;
use tower::util::MapRequestLayer;
use tower_tool::approval::ApprovalLayer;
use tower_tool::audit::{AuditLayer, MemoryTrail, Status};
use tower_tool::error::BoxError;
use tower_tool::idempotency::IdempotencyLayer;
use tower_tool::rate_limit::{Quota, RateLimitLayer};
use tower_tool::resume::ResumeLayer;
use tower_tool::validate::ValidateLayer;
use tower_tool::{
    ApprovalId, BoxToolset, Effect, Ledger, Provenance, Risk, ToolCall, ToolError, ToolErrorKind, ToolOutput, Toolset,
};
use tower_tool_test::{Answer, MockTool};

use crate::support::{alice, approval_id, call, decide, ledger};

/// One of the layers, by its name in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Audit,
    Resume,
    RateLimit,
    Validate,
    Approval,
    Idempotency,
    /// tower's own, which know nothing of a tool call.
    Timeout,
    MapRequest,
    ConcurrencyLimit,
    LoadShed,
    Buffer,
}

use Layer::{
    Approval, Audit, Buffer, ConcurrencyLimit, Idempotency, LoadShed, MapRequest, RateLimit, Resume, Timeout, Validate,
};

const RECOMMENDED: [Layer; 6] = [Audit, Resume, RateLimit, Validate, Approval, Idempotency];
const FOREIGN: [Layer; 5] = [Timeout, MapRequest, ConcurrencyLimit, LoadShed, Buffer];

impl Layer {
    fn name(self) -> &'static str {
        match self {
            Audit => "audit",
            Resume => "resume",
            RateLimit => "rate_limit",
            Validate => "validate",
            Approval => "approval",
            Idempotency => "idempotency",
            _ => "foreign",
        }
    }
}

struct Bench {
    ledger: Ledger,
    trail: MemoryTrail,
    quota: u32,
    tool: MockTool,
}

impl Bench {
    fn new(risk: Risk) -> Self {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        let tool = MockTool::with_schema("act", risk, schema);
        Self { ledger: ledger(), trail: MemoryTrail::new(), quota: 1_000, tool }
    }

    fn tools(&self, outermost_first: &[Layer]) -> BoxToolset {
        let tools = Toolset::builder().tool(self.tool.tool()).build().unwrap().boxed();
        outermost_first.iter().rev().fold(tools, |tools, layer| match layer {
            Audit => tools.layer(AuditLayer::new(self.trail.clone())).boxed(),
            Resume => tools.layer(ResumeLayer::new(&self.ledger)).boxed(),
            RateLimit => {
                let quota = Quota::per_hour(NonZeroU32::new(self.quota).unwrap());
                tools.layer(RateLimitLayer::local(quota)).boxed()
            }
            Validate => tools.layer(ValidateLayer::new()).boxed(),
            Approval => tools.layer(ApprovalLayer::new(&self.ledger)).boxed(),
            Idempotency => tools.layer(IdempotencyLayer::new(&self.ledger)).boxed(),
            Timeout => tools.layer(TimeoutLayer::new(Duration::from_secs(5))).boxed(),
            MapRequest => tools.layer(MapRequestLayer::new(|call: ToolCall| call)).boxed(),
            ConcurrencyLimit => tools.layer(ConcurrencyLimitLayer::new(1)).boxed(),
            LoadShed => tools.layer(LoadShedLayer::new()).boxed(),
            Buffer => tools.layer(BufferLayer::new(8)).boxed(),
        })
    }

    /// Calls, and says yes to whatever card that opens.
    async fn call_and_approve(&self, tools: &BoxToolset) -> Result<ToolOutput, ToolError> {
        let first = tools.run(call("act", json!({ "n": 1 }))).await;
        match first {
            Err(error) if error.details().contains_key("approval_id") => {
                decide(&self.ledger, approval_id(&error), true).await.unwrap();
                tools.run(call("act", json!({ "n": 1 }))).await
            }
            other => other,
        }
    }
}

const RISKS: [Risk; 3] = [Risk::PrivateRead, Risk::ReversibleWrite, Risk::Critical];

#[tokio::test(start_paused = true)]
async fn the_recommended_order_works_with_any_of_towers_layers_in_between() {
    for risk in RISKS {
        for foreign in FOREIGN {
            let bench = Bench::new(risk);
            let between: Vec<Layer> = RECOMMENDED.iter().flat_map(|layer| [*layer, foreign]).collect();
            let tools = bench.tools(&between);
            let output = bench.call_and_approve(&tools).await.unwrap();
            assert_eq!(output.provenance(), Provenance::Fresh, "{risk} {foreign:?}");
            bench.tool.assert_effects(1);
        }
    }
}

/// The pairs that must not be swapped: the outer layer, the inner layer, and what has to stand around them so that the
/// call gets that far.
const WRONG: &[(Layer, Layer, &[Layer])] = &[
    (Resume, Audit, &[]),
    (RateLimit, Audit, &[]),
    (Validate, Audit, &[]),
    (Approval, Audit, &[Validate]),
    (Idempotency, Audit, &[Validate]),
    (Validate, Resume, &[]),
    (Approval, Resume, &[]),
    (Idempotency, Resume, &[]),
    (Approval, Validate, &[]),
    (Idempotency, Validate, &[]),
    (Idempotency, Approval, &[Validate]),
    (Idempotency, Idempotency, &[Validate]),
];

#[tokio::test(start_paused = true)]
async fn the_refusal_names_both_layers_and_says_how_to_mend_it() {
    for (outer, inner, _) in WRONG {
        // A read gets through a layer that has nothing to decide about it, and so to the layer that must not stand there.
        let bench = Bench::new(Risk::PrivateRead);
        let error = bench.tools(&[*outer, *inner]).run(call("act", json!({}))).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::Internal);
        let told = error.to_string();
        bench.tool.assert_calls(0);
        if *outer == Approval {
            // Approval without validation around it refuses by itself, whatever stands further in.
            assert!(told.ends_with("put `validate` outside `approval`"), "{told}");
            continue;
        }
        assert!(told.contains(&format!("`{}` stands inside `{}`: ", inner.name(), outer.name())), "{told}");
        let mend =
            if outer == inner { "leave one of them out".into() } else { format!("put `{}` outside", inner.name()) };
        assert!(told.ends_with(&mend), "{told}");
        assert!(!error.safe_message().contains(inner.name()), "the model is told none of it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_swapped_pair_runs_nothing_whatever_stands_in_between() {
    for (outer, inner, around) in WRONG {
        for risk in RISKS {
            for foreign in std::iter::once(None).chain(FOREIGN.map(Some)) {
                let bench = Bench::new(risk);
                let stack: Vec<Layer> = around.iter().copied().chain([*outer]).chain(foreign).chain([*inner]).collect();
                let error = bench.call_and_approve(&bench.tools(&stack)).await.unwrap_err();
                let case = format!("{risk} {stack:?}: {error}");
                // With `approval` too far in, a demanded call is refused for that alone, by the ledger.
                let lacks_grant = error.kind() == ToolErrorKind::ApprovalRequired && risk.demands_approval();
                assert!(lacks_grant || error.kind() == ToolErrorKind::Internal, "{case}");
                assert_eq!(error.effect(), Effect::NotDone, "{case}");
                bench.tool.assert_calls(0);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_refused_order_holds_within_the_whole_stack_too() {
    for (outer, inner, _) in WRONG.iter().filter(|(outer, inner, _)| outer != inner) {
        for risk in RISKS {
            let bench = Bench::new(risk);
            let mut stack = RECOMMENDED;
            let at = |wanted: Layer| RECOMMENDED.iter().position(|layer| *layer == wanted).unwrap();
            stack.swap(at(*outer), at(*inner));
            let error = bench.call_and_approve(&bench.tools(&stack)).await.unwrap_err();
            assert!(
                matches!(error.kind(), ToolErrorKind::Internal | ToolErrorKind::ApprovalRequired),
                "{risk} {stack:?}: {error}"
            );
            bench.tool.assert_calls(0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_trail_names_the_layer_that_refused_the_order() {
    let bench = Bench::new(Risk::ReversibleWrite);
    for (stack, by) in [([Audit, Approval, Validate], "approval"), ([Audit, Validate, Resume], "resume")] {
        let error = bench.tools(&stack).run(call("act", json!({}))).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::Internal);
        let outcome = bench.trail.records().pop().unwrap().outcome.unwrap();
        assert_eq!((outcome.status, outcome.by.as_deref()), (Status::Refused, Some(by)));
    }
}

#[tokio::test(start_paused = true)]
async fn rate_limit_outside_resume_charges_a_call_that_comes_back() {
    for (stack, refused) in [
        ([Resume, RateLimit, Validate, Approval, Idempotency], None),
        ([RateLimit, Resume, Validate, Approval, Idempotency], Some(ToolErrorKind::RateLimited)),
    ] {
        let bench = Bench { quota: 1, ..Bench::new(Risk::Critical) };
        let tools = bench.tools(&stack);
        let id = approval_id(&tools.run(call("act", json!({}))).await.unwrap_err());
        decide(&bench.ledger, id, true).await.unwrap();
        let come_back = |id: ApprovalId| ToolCall::new("act", json!({}), alice().with_approval(id));
        let result = tools.run(come_back(id)).await;
        assert_eq!(result.err().map(|error| error.kind()), refused, "{stack:?}");
        bench.tool.assert_effects(usize::from(refused.is_none()));
    }
}

#[tokio::test(start_paused = true)]
async fn rate_limit_inside_validate_lets_a_model_guess_without_end() {
    for (stack, third) in
        [([RateLimit, Validate], ToolErrorKind::RateLimited), ([Validate, RateLimit], ToolErrorKind::InvalidArguments)]
    {
        let bench = Bench { quota: 2, ..Bench::new(Risk::PublicRead) };
        let tools = bench.tools(&stack);
        for kind in [ToolErrorKind::InvalidArguments, ToolErrorKind::InvalidArguments, third] {
            let error = tools.run(call("act", json!({ "n": "one" }))).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{stack:?}");
        }
        bench.tool.assert_calls(0);
    }
}

#[tokio::test(start_paused = true)]
async fn rate_limit_inside_approval_lets_a_caller_flood_a_person_with_cards() {
    for (stack, cards) in [([RateLimit, Validate, Approval], 2), ([Validate, Approval, RateLimit], 5)] {
        let bench = Bench { quota: 2, ..Bench::new(Risk::Critical) };
        let tools = bench.tools(&stack);
        for n in 0..5 {
            tools.run(call("act", json!({ "n": n }))).await.unwrap_err();
        }
        let open = tower_tool::store::Desk::pending(&bench.ledger, "acme").await.unwrap().len();
        assert_eq!(open, cards, "{stack:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_rate_limit_is_no_wrong_order() {
    let bench = Bench::new(Risk::PublicRead);
    bench.tools(&[RateLimit, Validate, RateLimit]).run(call("act", json!({}))).await.unwrap();
}

/// Tries again what took too long or failed without a trace.
#[derive(Clone)]
struct Retries(usize);

impl Policy<ToolCall, ToolOutput, BoxError> for Retries {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _call: &mut ToolCall,
        result: &mut Result<ToolOutput, BoxError>,
    ) -> Option<std::future::Ready<()>> {
        let again = result.is_err() && self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        again.then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, call: &ToolCall) -> Option<ToolCall> {
        Some(call.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn retry_around_timeout_belongs_innermost_and_works_for_a_read() {
    let bench = Bench::new(Risk::PrivateRead);
    bench.tool.answer_once(Answer::hangs());
    bench.tool.answer_once(ToolError::not_done("connection refused"));
    let ledger = &bench.ledger;
    let stack = ServiceBuilder::new()
        .layer(AuditLayer::new(bench.trail.clone()))
        .layer(ResumeLayer::new(ledger))
        .layer(ValidateLayer::new())
        .layer(ApprovalLayer::new(ledger))
        .layer(IdempotencyLayer::new(ledger))
        .layer(RetryLayer::new(Retries(2)))
        .layer(TimeoutLayer::new(Duration::from_secs(1)))
        .layer(AuditLayer::new(bench.trail.clone()).execution());
    let tools = Toolset::builder().tool(bench.tool.tool()).build().unwrap().layer(stack);
    let output = tools.run(call("act", json!({}))).await.unwrap();
    assert_eq!(output.data()["answer"], 1);
    bench.tool.assert_calls(3);
    let ends: Vec<Status> =
        bench.trail.records().into_iter().filter_map(|record| record.outcome).map(|outcome| outcome.status).collect();
    assert_eq!(ends, [Status::Cancelled, Status::Failed, Status::Completed, Status::Completed]);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_takes_too_long_is_transient_and_not_done() {
    let bench = Bench::new(Risk::PrivateRead);
    bench.tool.set_answer(Answer::hangs());
    let error = bench.tools(&[Validate, Timeout]).run(call("act", json!({}))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Timeout, Effect::NotDone));
}
