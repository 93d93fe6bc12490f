# The interface that is measured. What capnp makes of it stands in echo_capnp.inc, so that building needs no
# capnp: `capnp compile -orust echo.capnp`, and rename echo_capnp.rs.
@0xb7a3c4e5d6f70819;

interface Echo {
  null @0 ();
  echo @1 (data :Data) -> (data :Data);
  fetch @2 (bytes :UInt32) -> (data :Data);
  slow @3 (data :Data) -> (data :Data);
}
