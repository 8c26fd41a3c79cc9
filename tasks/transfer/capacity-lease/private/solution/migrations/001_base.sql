-- Applied once each, in the order of their names, by src/migrate.ts. Add files; never change one that was delivered.
create table pools (
  pool_id text primary key,
  name text not null,
  capacity integer not null check (capacity between 1 and 1000000)
);
