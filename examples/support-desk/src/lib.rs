//! A support desk whose agent may look up orders, open tickets and hand over to a person.
//!
//! Every call passes the recommended stack: audit, resume, rate limit, validation, approval, idempotency. Approvals are
//! answered by a person on the page that is served at `/`. Each worker holds a selection of the tools, at
//! `/workers/{worker}/tools/…`, and a credential names the workers it may use; the toolset as a whole is not mounted.
//!
//! [`app`] builds it, and [`App::serve`] serves it until it is told to stop. `src/main.rs` is the program around both.
//!
//! ```
//! use support_desk::{Command, app};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let arguments = ["--port", "0", "--approval-timeout", "30", "--store", "memory:"];
//! let Command::Serve(config) = Command::parse(arguments.map(Into::into), |_variable| None)? else {
//!     unreachable!("nobody asked for help");
//! };
//! let desk = app(&config).await?;
//! assert_eq!(desk.tickets().opened()?, 0);
//! # Ok(())
//! # }
//! ```

mod app;
mod config;
mod page;
mod serials;
mod store;
mod story;
mod tools;

pub use app::{App, StartError, app, app_with_clock};
pub use config::{Command, Config, ConfigError, USAGE, User};
pub use serials::Tickets;
pub use store::{Store, UnknownStore};
