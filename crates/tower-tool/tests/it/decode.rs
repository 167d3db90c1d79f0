//! What fits a typed tool's schema can be decoded.

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};
use tower_tool::schemars::{self, JsonSchema};
use tower_tool::validate::ValidateLayer;
use tower_tool::{CallContext, Risk, ToolErrorKind, ToolSpec, Toolset, tool_fn};

use crate::support::call;

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Integers {
    a: u8,
    b: i8,
    c: u16,
    d: i16,
    e: u32,
    f: i32,
    g: u64,
    h: i64,
    i: Option<usize>,
    j: Vec<i32>,
    #[serde(default)]
    k: u8,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Wrapped(u16);

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Plain {
    FirstOne,
    #[serde(rename = "2nd")]
    Second,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Tagged {
    Unit,
    Of { size: u8, name: Option<String> },
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
enum Untagged {
    Number(i32),
    Text(String),
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Shared {
    page: Option<u32>,
    #[serde(rename = "page-size")]
    page_size: u8,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Shapes {
    wrapped: Wrapped,
    plain: Plain,
    tagged: Tagged,
    untagged: Option<Untagged>,
    external: Option<External>,
    map: BTreeMap<String, u8>,
    pair: (u8, bool),
    #[serde(flatten)]
    shared: Shared,
    nested: Box<Integers>,
    float: f32,
    character: char,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
enum External {
    Nothing,
    One(u8),
    Some { of: i16 },
}

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn one_of(&mut self, list: &Value) -> Value {
        let list = list.as_array().unwrap();
        list[self.below(list.len())].clone()
    }

    /// A value that a careless caller may send in the place of another.
    fn stray(&mut self) -> Value {
        let edges = [
            0_i128,
            1,
            -1,
            127,
            128,
            -128,
            -129,
            255,
            256,
            32_767,
            32_768,
            -32_769,
            65_535,
            65_536,
            2_147_483_647,
            2_147_483_648,
            -2_147_483_649,
            4_294_967_295,
            4_294_967_296,
            i128::from(i64::MAX),
            i128::from(i64::MIN),
            i128::from(i64::MAX) + 1,
            i128::from(u64::MAX),
        ];
        match self.below(10) {
            0..=4 => {
                let edge = edges[self.below(edges.len())];
                i64::try_from(edge).map_or_else(|_| json!(u64::try_from(edge).unwrap()), |edge| json!(edge))
            }
            5 => json!([0.0, -1.0, 127.0, 128.0, 255.0, 256.0, -32_769.0, 4_294_967_296.0][self.below(8)]),
            6 => self.one_of(&json!([null, true, "", "x", "unit", "firstOne", 1.5, -0.0, 1e30])),
            7 => self.one_of(&json!([[], [1], [1, true], [300, true], {}, { "kind": "of", "size": 256 }])),
            8 => {
                let kind = self.one_of(&json!(["unit", "of", "other"]));
                json!({ "kind": kind, "size": self.below(300) })
            }
            _ => {
                let name = ["One", "Some", "Nothing", "x"][self.below(4)];
                json!({ name: self.below(300) })
            }
        }
    }

    /// Changes some member, somewhere.
    fn spoil(&mut self, value: &mut Value) {
        match value {
            Value::Object(members) if !members.is_empty() && self.below(3) > 0 => {
                let index = self.below(members.len());
                if let Some((_, member)) = members.iter_mut().nth(index) {
                    self.spoil(member);
                }
            }
            Value::Object(members) if self.below(2) == 0 => {
                let names: Vec<String> = members.keys().cloned().collect();
                if self.below(2) == 0 && !names.is_empty() {
                    members.remove(&names[self.below(names.len())]);
                } else {
                    members.insert("extra".to_owned(), self.stray());
                }
            }
            Value::Array(items) if !items.is_empty() && self.below(2) == 0 => {
                let index = self.below(items.len());
                self.spoil(&mut items[index]);
            }
            other => *other = self.stray(),
        }
    }
}

/// Gives how many spoilt arguments passed the schema.
async fn what_fits_is_decoded<T>(valid: T) -> usize
where
    T: DeserializeOwned + Serialize + JsonSchema + Debug + Send + 'static,
{
    let spec = ToolSpec::builder("take").description("Take it.").risk(Risk::PublicRead).input::<T>().build().unwrap();
    let schema = spec.input_schema().clone();
    let tool = tool_fn(spec, |taken: T, _cx: CallContext| async move { Ok(json!(format!("{taken:?}"))) });
    let tools = Toolset::builder().tool(tool).build().unwrap().layer(ValidateLayer::new());
    let valid = serde_json::to_value(valid).unwrap();
    tools.run(call("take", valid.clone())).await.unwrap_or_else(|error| panic!("{error:?}\n{schema:#}"));
    let mut random = Random(7);
    let mut passed = 0;
    for _ in 0..20_000 {
        let mut arguments = valid.clone();
        for _ in 0..=random.below(3) {
            random.spoil(&mut arguments);
        }
        if !arguments.is_object() {
            continue;
        }
        match tools.run(call("take", arguments.clone())).await {
            Ok(_) => passed += 1,
            Err(error) => {
                assert_eq!(error.kind(), ToolErrorKind::InvalidArguments);
                assert!(
                    error.details().contains_key("errors"),
                    "the schema let through what the type does not take: {arguments:#}\n{schema:#}\n{error:?}"
                );
            }
        }
    }
    passed
}

fn integers() -> Integers {
    Integers { a: 1, b: -1, c: 2, d: -2, e: 3, f: -3, g: 4, h: -4, i: Some(5), j: vec![6], k: 7 }
}

/// Every integer width, options and defaults: the schema holds what the type holds.
#[tokio::test(start_paused = true)]
async fn integers_of_every_width() {
    assert!(what_fits_is_decoded(integers()).await > 1_000);
}

/// Renames, newtypes, flattened structs, enums of every kind, maps and tuples.
#[tokio::test(start_paused = true)]
async fn shapes_of_every_kind() {
    let shapes = Shapes {
        wrapped: Wrapped(1),
        plain: Plain::FirstOne,
        tagged: Tagged::Of { size: 1, name: None },
        untagged: Some(Untagged::Number(1)),
        external: Some(External::Some { of: 1 }),
        map: BTreeMap::from([("a".to_owned(), 1)]),
        pair: (1, true),
        shared: Shared { page: Some(1), page_size: 2 },
        nested: Box::new(integers()),
        float: 1.5,
        character: 'x',
    };
    assert!(what_fits_is_decoded(shapes).await > 500);
}

/// Flattened and tagged, and all the same nothing gets in that no part knows.
#[tokio::test(start_paused = true)]
async fn composed_objects_are_closed() {
    let spec =
        ToolSpec::builder("take").description("Take it.").risk(Risk::PublicRead).input::<Flat>().build().unwrap();
    let tool = tool_fn(spec, |taken: Flat, _cx: CallContext| async move { Ok(json!(taken)) });
    let tools = Toolset::builder().tool(tool).build().unwrap().layer(ValidateLayer::new());
    let valid = json!({ "own": 1, "page-size": 2, "kind": "of", "size": 3 });
    tools.run(call("take", valid.clone())).await.unwrap();
    for (name, value) in [("extra", json!(1)), ("Size", json!(1)), ("pageSize", json!(1))] {
        let mut arguments: Map<String, Value> = valid.as_object().unwrap().clone();
        arguments.insert(name.to_owned(), value);
        let error = tools.run(call("take", Value::Object(arguments))).await.unwrap_err();
        assert!(error.safe_message().contains(name), "{}", error.safe_message());
    }
    let mut beyond = valid;
    beyond["size"] = Value::Number(Number::from(256));
    assert!(tools.run(call("take", beyond)).await.is_err());
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Flat {
    own: u8,
    #[serde(flatten)]
    shared: Shared,
    #[serde(flatten)]
    tagged: Tagged,
}
