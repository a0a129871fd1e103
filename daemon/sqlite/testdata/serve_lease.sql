CREATE TABLE serve_lease (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  store_id TEXT NOT NULL, lineage INTEGER NOT NULL,
  holder TEXT NOT NULL, host TEXT NOT NULL, incarnation TEXT NOT NULL,
  boot_id TEXT NOT NULL, lock_dev INTEGER NOT NULL, lock_ino INTEGER NOT NULL, pid INTEGER NOT NULL,
  epoch INTEGER NOT NULL, seq INTEGER NOT NULL, stamp TEXT NOT NULL,
  ttl_ms INTEGER NOT NULL, renew_ms INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('held', 'released')),
  ready_epoch INTEGER NOT NULL, single_host INTEGER NOT NULL,
  acquired_ms INTEGER NOT NULL, renewed_ms INTEGER NOT NULL,
  forced_by TEXT NOT NULL, force_reason TEXT NOT NULL
) STRICT;
INSERT INTO serve_lease VALUES (1,'store_01m91jeffrm2eagyfb6v0993zt',3,'alpha/inc_01m91jeffrm2eagyfb6v0993zt','alpha','inc_01m91jeffrm2eagyfb6v0993zt','7c2d7a3e-55a2-4e0b-9d52-0d7fb8b4f9a1',2049,1099511627783,4711,18,90210,'0123456789abc',30000,6000,'held',17,1,1793829394000,1793829400123,'ann@alpha','epoch 17 deposed, attested: host beta is off');
