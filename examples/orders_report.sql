-- What the customers spend with whom a customer is connected, over examples/orders.sql and examples/orders.dl.
--
--   rederive run examples/orders.sql examples/orders.dl examples/orders_report.sql

CREATE VIEW around AS
  SELECT a AS customer, count(*) AS customers, sum(total) AS total FROM together JOIN spent ON spent.customer = b GROUP BY a;

INSERT INTO bought VALUES ('cid', 'washer');
DELETE FROM bought WHERE customer = 'bob';
