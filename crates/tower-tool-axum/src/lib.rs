#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod app;
mod approvals;
mod auth;
mod body;
mod call;
mod cards;
mod events;
mod executions;
mod headers;
pub mod hosts;
mod respond;
mod router;
mod slots;

pub use auth::{Authenticator, Identity, StaticTokens, TokenError};
pub use hosts::HostCheckLayer;
pub use router::{BuildError, ToolRouter, ToolRouterBuilder};
