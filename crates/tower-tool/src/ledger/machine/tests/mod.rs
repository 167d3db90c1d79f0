//! The state machine by itself: no store, no clock, no tasks.

mod random;
mod table;
mod time;

use std::sync::LazyLock;

use serde_json::json;
use tower_tool_core::store::{Arguments, Asker, Door};
use tower_tool_core::{CallContext, IdempotencyKey, Principal, Risk, Scope};

use super::*;

/// An intent, and what becomes of it.
#[derive(Clone, Debug)]
struct World {
    record: Option<Arc<Record>>,
    now: Timestamp,
    settings: Settings,
    /// The latest card, and the latest execution.
    card: ApprovalId,
    execution: Execution,
}

impl World {
    fn new() -> Self {
        Self {
            record: None,
            now: Timestamp::from_millis(1_000_000_000),
            settings: Settings::default(),
            card: ApprovalId::random().unwrap(),
            execution: Execution::new(ExecutionId::random().unwrap(), "nobody's", 1, 1),
        }
    }

    /// What a record has become by now, `absent` if there is none.
    fn state(&self) -> &'static str {
        present(self.record.as_deref(), self.now).map_or("absent", |record| record.state.as_str())
    }

    #[track_caller]
    fn record(&self) -> &Record {
        self.record.as_deref().expect("there is a record")
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// Does what a store does with a step, and checks what must hold of every one.
    #[track_caller]
    fn apply<T>(&mut self, step: Step<T>) -> T {
        match step {
            Step::Keep(answer) => answer,
            Step::Swap(next, answer) => {
                if let (Some(old), Some(new)) = (&self.record, &next) {
                    assert_eq!(old.key, new.key);
                    assert!(new.revision > old.revision, "a store could not tell the records apart");
                    assert!(new.fence >= old.fence, "the fence only grows");
                }
                self.record = next;
                answer
            }
        }
    }

    #[track_caller]
    fn ask(&mut self, asking: &Asking<'_>) -> Asked {
        let step = ask(self.record.as_deref(), self.now, asking, &self.settings);
        let asked = self.apply(step);
        if let Asked::Opened(card) = &asked {
            self.card = card.id;
        }
        asked
    }

    #[track_caller]
    fn decide(&mut self, id: ApprovalId, decision: &Decision) -> Decided {
        let step = decide(self.record.as_deref(), self.now, id, decision, &self.settings);
        self.apply(step)
    }

    /// Decides the latest card, on the arguments that it shows.
    #[track_caller]
    fn say(&mut self, yes: bool) -> Decided {
        let card = self.record.as_ref().and_then(|record| record.approval.as_ref());
        let shown = card.map_or(*wanting(1).arguments_hash(), |card| card.executed.hash);
        self.decide(self.card, &decision(yes, shown))
    }

    #[track_caller]
    fn begin(&mut self, claiming: &Claiming) -> Begun {
        let step = begin(self.record.as_deref(), self.now, claiming, &self.settings);
        let begun = self.apply(step);
        if let Begun::Claimed(execution, _) = &begun {
            self.execution = execution.clone();
        }
        begun
    }

    #[track_caller]
    fn finish(&mut self, execution: &Execution, outcome: &Outcome) -> Finished {
        let step = finish(self.record.as_deref(), self.now, execution, outcome, &self.settings);
        self.apply(step)
    }

    /// The latest execution ends.
    #[track_caller]
    fn finishes(&mut self, outcome: &Outcome) -> Finished {
        self.finish(&self.execution.clone(), outcome)
    }

    #[track_caller]
    fn renew(&mut self) -> bool {
        let step = renew(self.record.as_deref(), self.now, &self.execution, &self.settings);
        self.apply(step).is_some()
    }

    #[track_caller]
    fn end(&mut self) {
        let step = end(self.record.as_deref(), self.now);
        self.apply(step);
    }

    /// The record's card, under the grant of which a claim may be made.
    fn granted(&self) -> Claiming {
        Claiming { demanded: true, grant: Some(self.card), ..free(1) }
    }
}

/// What somebody wants under one key. Made once: hashing is what these tests would spend their time with.
fn wanting(n: u32) -> Arc<Intent> {
    static INTENTS: LazyLock<[Arc<Intent>; 3]> = LazyLock::new(|| {
        let context = CallContext::new(Principal::new("acme", "alice"), Scope::new("session-1").unwrap());
        let context = context.with_key(IdempotencyKey::new("order-17").unwrap());
        [0, 1, 2].map(|n| Arc::new(Intent::new("pay", &json!({ "n": n }), &context)))
    });
    Arc::clone(&INTENTS[n as usize])
}

/// A claim that nothing is demanded of.
fn free(n: u32) -> Claiming {
    Claiming {
        intent: wanting(n),
        safe_to_repeat: false,
        demanded: false,
        grant: None,
        execution: ExecutionId::random().unwrap(),
        provider_key: "provider".into(),
        keep_unknown: None,
        arguments: None,
        seen: None,
    }
}

fn demanded(n: u32) -> Claiming {
    Claiming { demanded: true, ..free(n) }
}

fn repeatable(n: u32) -> Claiming {
    Claiming { safe_to_repeat: true, ..free(n) }
}

const DEFINITION: Digest = Digest::from_bytes([1; 32]);
const OTHER_DEFINITION: Digest = Digest::from_bytes([2; 32]);

fn asking(intent: &Intent, n: u32) -> Asking<'_> {
    let context = CallContext::new(Principal::new("acme", "alice"), Scope::new("session-1").unwrap());
    let never = Timestamp::from_millis(0);
    Asking {
        intent,
        safe_to_repeat: false,
        provider_key: "provider".into(),
        resumed: None,
        definition: DEFINITION,
        card: Approval::new(
            ApprovalId::random().unwrap(),
            Asker::of(&context),
            Arguments::new(Arc::new(json!({ "n": n }))),
            json!({}),
            DEFINITION,
            Risk::Critical,
            "it is money",
            never,
            never,
        ),
    }
}

fn decision(approved: bool, shown: Digest) -> Decision {
    Decision::new(approved, "bob", Door::new("test"), shown, Timestamp::from_millis(0))
}

fn completed() -> Outcome {
    Outcome::Completed(ToolOutput::new(json!("paid")))
}

fn done() -> Outcome {
    let details = serde_json::Map::new();
    let effect = tower_tool_core::Effect::Done;
    Outcome::Done(StoredError { code: "INTERNAL".into(), safe_message: "half way".into(), details, effect })
}

fn maybe() -> Outcome {
    Outcome::MaybeDone("the connection broke".into())
}
