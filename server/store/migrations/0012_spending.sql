-- What runs used on a day, by which budgets of a day are kept.
CREATE TABLE spending (
  day         BIGINT NOT NULL, -- since 1970, UTC
  factory     TEXT   NOT NULL,
  automation  TEXT   NOT NULL, -- empty: of runs that none started
  tokens      BIGINT NOT NULL,
  cost_micros BIGINT NOT NULL, -- millionths of a dollar
  PRIMARY KEY (day, factory, automation)
) WITHOUT ROWID;
