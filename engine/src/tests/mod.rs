//! Tests of the engine with test workflows, on a real database and a clock that only the test advances.

mod admission;
mod audit_export;
mod chaos;
mod crashes;
mod ends;
mod explain;
mod faults;
mod kit;
mod life;
mod log;
mod matrix;
mod model_check;
mod outage;
mod purity;
mod remote;
mod restored;
mod signals;
mod wire;
