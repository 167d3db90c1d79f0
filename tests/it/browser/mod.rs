//! The support desk's page in a real browser: approvals answered by a person.

mod driver;

use std::net::Ipv4Addr;
use std::panic::panic_any;

use serde_json::{Value, json};
use support_desk::{App, Command, Tickets, app};
use tokio::net::TcpListener;

use driver::{Browser, key};

const TOKEN: &str = "secret-a";
const APPROVER: &str = "secret-b";
/// The one card that most tests have.
const APPROVE: &str = ".card .approve";
const ARMED: &str = "$('.card .approve')?.getAttribute('aria-disabled') === 'false'";

/// Serves a desk for as long as the test runs, with a browser that has its page open.
async fn at_the_desk(arguments: &[&str], test: impl AsyncFnOnce(&Browser, &Tickets)) {
    let tokens = format!("alice={TOKEN},bob={APPROVER}:approver");
    let arguments = arguments.iter().chain(&["--store", "memory:"]).map(Into::into);
    let Ok(Command::Serve(config)) =
        Command::parse(arguments, |name| (name == "SUPPORT_DESK_TOKENS").then(|| tokens.clone().into()))
    else {
        panic!("the arguments are none");
    };
    let desk: App = app(&config).await.unwrap();
    let tickets = desk.tickets().clone();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let test = Browser::with(async |browser: &Browser| {
        browser.go(&format!("http://{address}/#token={TOKEN}")).await;
        browser.until("document.documentElement.dataset.ready").await;
        test(browser, &tickets).await;
        // Whatever the page's policy refused, it says on the console.
        let refused = browser.console().await;
        let refused: Vec<_> = refused.iter().filter(|line| line.contains("Content Security Policy")).collect();
        assert!(refused.is_empty(), "{refused:?}");
    });
    tokio::select! {
        () = test => {}
        ended = desk.serve(listener, std::future::pending()) => panic_any(format!("the desk ended: {ended:?}")),
    }
}

/// Calls `create_ticket` on the page.
async fn create_ticket(browser: &Browser, subject: &str, description: &str) {
    browser.choose("#worker", "refund").await;
    browser.until("$('#field-description')").await;
    browser.paste("#field-subject", subject).await;
    browser.paste("#field-description", description).await;
    browser.click("#send").await;
}

/// Waits for the newest answer to have this status, and gives its envelope.
async fn answer(browser: &Browser, status: u16) -> Value {
    browser.until_with("$('.answer')?.dataset.status === String(a)", json!(status)).await;
    let text = browser.value("$('.answer .envelope').textContent").await;
    serde_json::from_str(text.as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn an_approved_call_runs_once_and_its_repeat_is_replayed_without_asking() {
    at_the_desk(&[], async |browser, tickets| {
        create_ticket(browser, "Torn bag", "The bag of order A-1024 was torn.").await;
        answer(browser, 202).await;
        browser.until(ARMED).await;
        assert_eq!(tickets.opened().unwrap(), 0);
        let card = browser.text(".card").await;
        for told in ["create_ticket", "R2", "alice", "Torn bag", "The bag of order A-1024 was torn.", "sha256:"] {
            assert!(card.contains(told), "{told}: {card}");
        }
        browser.fill(".card .decision input", "it was torn indeed").await;
        browser.click(APPROVE).await;

        let first = answer(browser, 200).await;
        assert_eq!(first["meta"]["replayed"], false);
        assert_eq!(tickets.opened().unwrap(), 1);
        browser.until("$('.card .says').textContent.includes('Approved by alice: it was torn indeed')").await;

        browser.click("#send").await;
        browser.until("document.querySelectorAll('.answer').length === 2").await;
        let second = answer(browser, 200).await;
        assert_eq!(second["meta"]["replayed"], true);
        assert_eq!(second["data"]["ticket_id"], first["data"]["ticket_id"]);
        assert_eq!(tickets.opened().unwrap(), 1);
        assert_eq!(browser.value("document.querySelectorAll('.card').length").await, 1);

        // The story tells the asking, the one execution and the replay.
        browser.until("document.querySelectorAll('.story[data-outcome=replayed]').length === 1").await;
        let story = browser.value("$('#audit').textContent").await.to_string();
        for told in ["refused by approval, APPROVAL_REQUIRED", "execution", "completed", "replayed"] {
            assert!(story.contains(told), "{told}: {story}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_denied_call_does_not_run_and_may_be_asked_for_again() {
    at_the_desk(&[], async |browser, tickets| {
        create_ticket(browser, "Torn bag", "The bag was torn.").await;
        browser.until("$('.card .deny')?.getAttribute('aria-disabled') === 'false'").await;
        browser.fill(".card .decision input", "not like this").await;
        browser.click(".card .deny").await;
        let refused = answer(browser, 403).await;
        assert_eq!(refused["error"]["category"], "approval");
        assert_eq!(refused["error"]["code"], "APPROVAL_DENIED");
        browser.until("$('.card').dataset.state === 'denied'").await;
        assert_eq!(tickets.opened().unwrap(), 0);

        browser.click("#send").await;
        browser.until("document.querySelectorAll('.card').length === 2").await;
        let armed = "$('.card:last-child .approve').getAttribute('aria-disabled') === 'false'";
        browser.value("$('.card:last-child .approve').scrollIntoView({ block: 'end' })").await;
        browser.until(armed).await;
        browser.click(".card:last-child .approve").await;
        answer(browser, 200).await;
        assert_eq!(tickets.opened().unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_decision_that_is_made_elsewhere_reaches_the_page_and_its_call() {
    at_the_desk(&[], async |browser, tickets| {
        create_ticket(browser, "Torn bag", "The bag was torn.").await;
        let card = answer(browser, 202).await["error"]["details"].clone();
        browser.until("$('.card')").await;
        let decide = "fetch(`/approvals/${a.card.approval_id}/decision`, {
            method: 'POST',
            headers: { Authorization: `Bearer ${a.token}`, 'Content-Type': 'application/json' },
            body: JSON.stringify({ approved: true, args_hash: a.card.args_hash }),
        }).then((response) => response.status)";
        assert_eq!(browser.value_with(decide, json!({ "card": card, "token": APPROVER })).await, 200);
        answer(browser, 200).await;
        assert!(browser.text(".card .says").await.contains("Approved by bob"));
        assert_eq!(tickets.opened().unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_card_that_nobody_decides_expires_and_its_call_is_refused() {
    at_the_desk(&["--approval-timeout", "3"], async |browser, tickets| {
        create_ticket(browser, "Torn bag", "The bag was torn.").await;
        browser.until("/^[123] s$/.test($('.card .clock')?.textContent)").await;
        let refused = answer(browser, 410).await;
        assert_eq!(refused["error"]["code"], "APPROVAL_EXPIRED");
        browser.until("$('.card').dataset.state === 'expired'").await;
        assert_eq!(browser.value(ARMED).await, false);
        browser.click(APPROVE).await;
        browser.click(".card .deny").await;
        assert_eq!(browser.value("$('.card').dataset.state").await, "expired");
        assert_eq!(tickets.opened().unwrap(), 0);
    })
    .await;
}

// denoland/deno PR#36195, Growth-Circle/cadis#732: what reads differently from what runs.
#[tokio::test]
async fn markup_and_characters_that_nobody_sees_are_text_on_a_card() {
    const SUBJECT: &str = "<img src=x onerror=\"window.ran=1\">";
    let hidden = "\u{202e}\u{2066}\u{200b}\u{feff}\u{2060}\u{e0041}\u{1d173}\u{1b}[2K\u{7}\u{a0}\u{2028}\u{3164}";
    let description =
        format!("</div></script><script>window.ran=1</script>{{{{7*7}}}} c:\\u{{202E}} {hidden} \u{301}end");
    at_the_desk(&[], async |browser, _tickets| {
        create_ticket(browser, SUBJECT, &description).await;
        browser.until(ARMED).await;
        let value = |name: usize| format!("document.querySelectorAll('.card .value')[{name}].textContent");
        assert_eq!(browser.value(&value(0)).await, SUBJECT);
        let shown = browser.value(&value(1)).await;
        assert_eq!(
            shown,
            "</div></script><script>window.ran=1</script>{{7*7}} c:\\\\u{202E} \\u{202E}\\u{2066}\\u{200B}\\u{FEFF}\
             \\u{2060}\\u{E0041}\\u{1D173}\\u{1B}[2K\\u{7}\\u{A0}\\u{2028}\\u{3164} \u{301}end"
        );
        assert_eq!(browser.value("document.querySelectorAll('.card .escape').length").await, 12);
        assert!(browser.text(".card .warning").await.starts_with("12 hidden characters"));
        // Neither the card, nor the answer, nor the story made elements of it.
        for inside in [".card", "#answers", "#audit"] {
            let made = format!("$('{inside}').querySelectorAll('img, script, iframe').length");
            assert_eq!(browser.value(&made).await, 0, "{inside}");
        }
        assert_eq!(browser.value("window.ran ?? null").await, Value::Null);
    })
    .await;
}

// Growth-Circle/cadis#435, block/buzz#4502: the dangerous part was behind what was shown.
#[tokio::test]
async fn long_arguments_must_be_opened_and_read_to_their_end_before_approve_arms() {
    let description = format!("{} && curl x|sh", "It was torn. ".repeat(290));
    at_the_desk(&[], async |browser, tickets| {
        create_ticket(browser, "Torn bag", &description).await;
        browser.until("$('.card .says')?.textContent.startsWith('Show everything')").await;
        browser.value("$('.card .approve').scrollIntoView({ block: 'end' })").await;
        browser.click(APPROVE).await;
        assert_eq!(browser.value(ARMED).await, false);
        assert_eq!(browser.value("$('.card').dataset.state").await, "pending");

        browser.value("window.scrollTo(0, 0)").await;
        browser.click(".card .open").await;
        let tail = "$('.card .argument:last-child .value').textContent.endsWith(' && curl x|sh')";
        assert_eq!(browser.value(tail).await, true);
        browser.until("$('.card .says').textContent.startsWith('Scroll through')").await;
        // Jumping to the button skips the middle.
        browser.value("$('.card .approve').scrollIntoView({ block: 'end' })").await;
        browser.click(APPROVE).await;
        assert_eq!(browser.value(ARMED).await, false);

        browser.value("window.scrollTo(0, 0)").await;
        for _ in 0..12 {
            browser.scroll(".card", 300).await;
        }
        browser.until(ARMED).await;
        browser.click(APPROVE).await;
        answer(browser, 200).await;
        assert_eq!(tickets.opened().unwrap(), 1);
    })
    .await;
}

/// Puts cards on the page that no desk of ours sends.
async fn cards_of_our_own(browser: &Browser) {
    let list = "import('/js/cards.js').then(({ cardList }) => {
        window.list = cardList({
            element: $('#cards'), empty: $('#no-cards'), known: (tool) => tool === 'pay',
            decide: async (card) => { window.decided = card.args_hash; return {}; },
            announce() {}, onClosed() {}, onCount() {},
        });
    })";
    browser.value(list).await;
}

fn card(id: &str, arguments: Value) -> Value {
    json!({
        "approval_id": id, "tool": "pay", "actor_id": "alice", "scope": "s1", "risk": "R4", "reason": "money",
        "arguments": arguments, "args_hash": format!("sha256:{id}"), "state": "pending", "may_decide": true,
        "created_at": "2026-11-30T12:00:00.000Z", "expires_at": "2026-11-30T12:01:00.000Z",
    })
}

// block/buzz#4502: an empty command was shown as a bare prompt sign, with the button enabled.
#[tokio::test]
async fn a_card_that_does_not_say_what_would_run_cannot_be_approved() {
    at_the_desk(&[], async |browser, _tickets| {
        cards_of_our_own(browser).await;
        let mut unknown = card("unknown", json!({ "amount": 7 }));
        unknown["tool"] = json!("what");
        let mut unnamed = card("unnamed", json!({ "amount": 7 }));
        unnamed["tool"] = Value::Null;
        let mut unhashed = card("unhashed", json!({ "amount": 7 }));
        unhashed["args_hash"] = Value::Null;
        let empty = [json!({}), json!([]), json!("rm -rf /"), Value::Null];
        let empty = empty.into_iter().zip(["1", "2", "3", "4"]).map(|(arguments, id)| card(id, arguments));
        // The last one says it, to know when the others would have been armed.
        for card in [unknown, unnamed, unhashed].into_iter().chain(empty).chain([card("good", json!({ "amount": 7 }))])
        {
            browser.value_with("list.merge(a)", card).await;
        }
        for (id, armed) in
            [("unknown", false), ("unnamed", false), ("unhashed", false), ("1", false), ("4", false), ("good", true)]
        {
            let button = format!("[data-approval='{id}'] .approve");
            browser.value(&format!("$(`{button}`).scrollIntoView({{ block: 'end' }})")).await;
            if armed {
                browser.until(&format!("$(`{button}`).getAttribute('aria-disabled') === 'false'")).await;
            }
            let disabled = browser.value(&format!("$(`{button}`).getAttribute('aria-disabled')")).await;
            assert_eq!(disabled, (!armed).to_string(), "{id}");
            let says = browser.text(&format!("[data-approval='{id}'] .says")).await;
            assert_eq!(says.contains("cannot be approved here"), !armed, "{id}: {says}");
        }
        let disabled = "document.querySelectorAll('.approve[aria-disabled=true]').length";
        assert_eq!(browser.value(disabled).await, 7);
    })
    .await;
}

#[tokio::test]
async fn a_card_whose_arguments_change_is_to_be_read_again() {
    at_the_desk(&[], async |browser, _tickets| {
        cards_of_our_own(browser).await;
        browser.value_with("list.merge(a)", card("one", json!({ "amount": 7 }))).await;
        browser.until(ARMED).await;
        let mut edited = card("one", json!({ "amount": 7000 }));
        edited["args_hash"] = json!("sha256:edited");
        let shown =
            "(list.merge(a), [$('.card .approve').getAttribute('aria-disabled'), $('.card .value').textContent])";
        assert_eq!(browser.value_with(shown, edited).await, json!(["true", "7000"]));
        browser.until(ARMED).await;
        browser.click(APPROVE).await;
        browser.until("window.decided === 'sha256:edited'").await;
        assert_eq!(browser.value("document.querySelectorAll('.card').length").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_card_can_be_approved_by_keyboard_alone_and_never_takes_the_focus() {
    at_the_desk(&[], async |browser, tickets| {
        create_ticket(browser, "Torn bag", "The bag was torn.").await;
        // A key that was meant for the form finds the form.
        browser.value("$('#field-subject').focus()").await;
        browser.until("$('.card')").await;
        assert_eq!(browser.value("document.activeElement.id").await, "field-subject");
        browser.until(ARMED).await;
        assert_eq!(browser.value("document.activeElement.id").await, "field-subject");

        let mut tabs = 0;
        while browser.value("document.activeElement.className").await != "approve" {
            browser.press(&[key::TAB]).await;
            tabs += 1;
            assert!(tabs < 30, "the card is not reached by the tab key");
        }
        let outline = browser.value("getComputedStyle(document.activeElement).outlineStyle").await;
        assert_eq!(outline, "solid");
        browser.press(&[key::TAB]).await;
        assert_eq!(browser.value("document.activeElement.className").await, "deny");
        browser.press(&[key::SHIFT, key::TAB]).await;
        browser.press(&[key::ENTER]).await;
        answer(browser, 200).await;
        assert_eq!(tickets.opened().unwrap(), 1);
        // What had the focus still has it.
        assert_eq!(browser.value("document.activeElement.className").await, "approve");
    })
    .await;
}

#[tokio::test]
async fn cards_stay_where_they_are_when_others_come_and_close() {
    at_the_desk(&[], async |browser, _tickets| {
        let place = "JSON.stringify([...document.querySelectorAll('.card .approve')].map((button) => {
            const { x, y } = button.getBoundingClientRect();
            return [x, y + scrollY].map(Math.round);
        }))";
        let places = async || -> Vec<Value> {
            let text = browser.value(place).await;
            serde_json::from_str(text.as_str().unwrap()).unwrap()
        };
        create_ticket(browser, "The first", "It was torn.").await;
        browser.until(ARMED).await;
        let alone = places().await;
        create_ticket(browser, "The second", "It was torn.").await;
        browser.until("document.querySelectorAll('.card').length === 2").await;
        let both = places().await;
        assert_eq!(both[0], alone[0]);
        browser.fill(".card .decision input", "no").await;
        browser.click(".card .deny").await;
        browser.until("$('.card').dataset.state === 'denied'").await;
        answer(browser, 202).await;
        assert_eq!(places().await, both);
    })
    .await;
}

#[tokio::test]
async fn the_token_leaves_the_address_and_a_wrong_one_is_asked_for_again() {
    at_the_desk(&[], async |browser, _tickets| {
        let address = browser.value("location.href + history.length").await;
        assert!(!address.as_str().unwrap().contains(TOKEN), "{address}");
        // A reload keeps the token, the session too.
        let session = browser.value("$('#session').value").await;
        browser.value("location.reload()").await;
        browser.until("document.documentElement.dataset.ready").await;
        assert_eq!(browser.value("$('#session').value").await, session);

        browser.click("#leave").await;
        browser.until("$('#token')?.checkVisibility()").await;
        browser.fill("#token", "wrong").await;
        browser.press(&[key::ENTER]).await;
        browser.until("$('#sign-in-problem').textContent.includes('does not know')").await;
        browser.fill("#token", TOKEN).await;
        browser.press(&[key::ENTER]).await;
        browser.until("document.documentElement.dataset.ready").await;
        assert_eq!(browser.text("#who").await, "alice");
    })
    .await;
}
