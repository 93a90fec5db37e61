//! The engine through kinds of its own that know nothing of any real workflow, on a real database and a clock that stands
//! still until it is told to move.

mod admission;
mod chaos;
mod crashes;
mod ends;
mod explain;
mod faults;
mod kit;
mod life;
mod matrix;
mod model_check;
mod purity;
mod signals;
