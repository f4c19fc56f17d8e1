-- Orders in SQL, and beside it in Datalog (orders.dl) which customers are connected by what they buy. Files are run in order:
-- Datalog reads the views of SQL, and orders_report.sql the relations of Datalog. Tables without a key are bags: copies count.
--
--   rederive run examples/orders.sql
--   rederive run examples/orders.sql examples/orders.dl examples/orders_report.sql
--   rederive explain examples/orders.sql examples/orders.dl --view together

CREATE TABLE item (name STRING PRIMARY KEY, price DECIMAL(10, 2) NOT NULL);
CREATE TABLE bought (customer STRING NOT NULL, item STRING NOT NULL);

CREATE VIEW spent AS
  SELECT customer, sum(price) AS total, count(DISTINCT item) AS items FROM bought JOIN item ON name = item GROUP BY customer;
CREATE VIEW receipt AS SELECT customer, price FROM bought JOIN item ON name = item;
CREATE TEMPORARY VIEW pair AS SELECT DISTINCT customer, item FROM bought;

INSERT INTO item VALUES ('bolt', 0.10), ('nut', 0.25), ('washer', 0.25);
INSERT INTO bought VALUES ('ann', 'nut'), ('ann', 'nut'), ('ann', 'washer'), ('bob', 'nut'), ('cid', 'bolt');
