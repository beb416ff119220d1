//! Tests of the config floor.
