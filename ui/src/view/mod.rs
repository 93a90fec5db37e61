//! The pages: what each template shows, made from the data of the API.

mod account;
mod ask;
mod error;
mod filter;
mod frame;
mod job;
mod jobs;
mod log;
mod login;
mod new_job;
mod new_server;
mod overview;
mod server;
mod servers;
mod table;
mod tables;

pub use account::AccountView;
pub use ask::{Ask, Effect};
pub use error::ErrorPage;
pub use frame::{Frame, Role, Tab, Theme};
pub use job::JobView;
pub use jobs::{JobsQuery, JobsView};
pub use log::LogView;
pub use login::LoginView;
pub use new_job::{JobForm, NewJobView};
pub use new_server::NewServerView;
pub use overview::OverviewView;
pub use server::ServerPageView;
pub use servers::ServersView;
pub use table::TableView;
