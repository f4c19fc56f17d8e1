-- SR, section 1.4: the factory's inventory. AMOSQL's functions of an item are tables with the item as key.
CREATE TABLE quantity (item STRING PRIMARY KEY, n INT NOT NULL);
CREATE TABLE max_stock (item STRING PRIMARY KEY, n INT NOT NULL);
CREATE TABLE min_stock (item STRING PRIMARY KEY, n INT NOT NULL);
CREATE TABLE consume_freq (item STRING PRIMARY KEY, n INT NOT NULL);
CREATE TABLE supplies (supplier STRING PRIMARY KEY, item STRING NOT NULL);
CREATE TABLE delivery_time (item STRING, supplier STRING, days INT NOT NULL, PRIMARY KEY (item, supplier));

CREATE TEMPORARY VIEW threshold AS
  SELECT s.item, c.n * d.days + m.n AS n
  FROM supplies s JOIN consume_freq c ON c.item = s.item JOIN min_stock m ON m.item = s.item
    JOIN delivery_time d ON d.item = s.item AND d.supplier = s.supplier;

CREATE RULE monitor_items
  WHEN SELECT q.item FROM quantity q JOIN threshold t ON q.item = t.item WHERE q.n < t.n
  DO CALL order_items(item);

INSERT INTO quantity VALUES ('item1', 5000), ('item2', 7500);
INSERT INTO max_stock VALUES ('item1', 5000), ('item2', 7500);
INSERT INTO min_stock VALUES ('item1', 100), ('item2', 200);
INSERT INTO consume_freq VALUES ('item1', 20), ('item2', 30);
INSERT INTO supplies VALUES ('sup1', 'item1'), ('sup2', 'item2');
INSERT INTO delivery_time VALUES ('item1', 'sup1', 2), ('item2', 'sup2', 3);

SELECT * FROM threshold;
UPDATE quantity SET n = 140 WHERE item = 'item1';
UPDATE quantity SET n = 139 WHERE item = 'item1';
UPDATE quantity SET n = 120 WHERE item = 'item1';
BEGIN;
UPDATE min_stock SET n = 150 WHERE item = 'item1';
UPDATE min_stock SET n = 100 WHERE item = 'item1';
COMMIT;
UPDATE quantity SET n = 280 WHERE item = 'item2';
