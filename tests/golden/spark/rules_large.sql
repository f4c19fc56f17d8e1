-- a join: v(x, z) :- p(x, y), q(y, z).
SELECT a0.c0 AS c0, a1.c1 AS c1 FROM p a0 JOIN q a1 ON (a1.c0 = a0.c1);

-- a product: v(x, z) :- p(x, _), q(_, z).
SELECT a0.c0 AS c0, a1.c1 AS c1 FROM p a0 CROSS JOIN q a1;

-- a repeated variable and a constant: w(x) :- p(x, "a"), v(x, x).
SELECT a0.c0 AS c0 FROM p a0 JOIN v a1 ON (a1.c0 = a0.c0) AND (a1.c1 = a0.c0) WHERE (a0.c1 = 'a');

-- negation: u(x, y) :- p(x, y), !q(y, x).
SELECT a0.c0 AS c0, a0.c1 AS c1 FROM p a0 LEFT ANTI JOIN q a1 ON (a1.c0 = a0.c1) AND (a1.c1 = a0.c0);

-- negation of a relation without columns: w(x) :- n(x), !e().
SELECT a2.c0 AS c0 FROM (SELECT TRUE AS c0) a0 LEFT ANTI JOIN e a1 ON TRUE CROSS JOIN n a2;

-- a comparison: v(x, z) :- p(x, y), q(y, z), x < z, y != "b".
SELECT a0.c0 AS c0, a1.c1 AS c1 FROM p a0 JOIN q a1 ON (a1.c0 = a0.c1) WHERE (NOT (a0.c1 <=> 'b')) AND (a0.c0 < a1.c1);

-- arithmetic that may fail: v(x, z) :- n(x), z = x * x - 1.
SELECT a0.c0 AS c0, try_subtract(try_multiply(a0.c0, a0.c0), 1L) AS c1, coalesce((CASE WHEN ((try_multiply(a0.c0, a0.c0) IS NULL) AND (a0.c0 IS NOT NULL) AND (a0.c0 IS NOT NULL)) THEN concat('* overflows 64 bits: ', a0.c0, ', ', a0.c0) END), (CASE WHEN ((try_subtract(try_multiply(a0.c0, a0.c0), 1L) IS NULL) AND (try_multiply(a0.c0, a0.c0) IS NOT NULL) AND (1L IS NOT NULL)) THEN concat('- overflows 64 bits: ', try_multiply(a0.c0, a0.c0), ', ', 1L) END), CAST(NULL AS STRING)) AS e FROM n a0;

-- a division in a test: w(x) :- n(x), 10 / x > 2.
SELECT a0.c0 AS c0, coalesce((CASE WHEN (a0.c0 = 0L) THEN concat('division by zero: ', 10L, ' / 0') WHEN ((10L = CAST('-9223372036854775808' AS BIGINT)) AND (a0.c0 = CAST('-1' AS BIGINT))) THEN '/ overflows 64 bits: -9223372036854775808, -1' END), CAST(NULL AS STRING)) AS e FROM n a0 WHERE (((CASE WHEN (a0.c0 = 0L) THEN concat('division by zero: ', 10L, ' / 0') WHEN ((10L = CAST('-9223372036854775808' AS BIGINT)) AND (a0.c0 = CAST('-1' AS BIGINT))) THEN '/ overflows 64 bits: -9223372036854775808, -1' END) IS NOT NULL) OR ((CASE WHEN ((a0.c0 = 0L) OR ((10L = CAST('-9223372036854775808' AS BIGINT)) AND (a0.c0 = CAST('-1' AS BIGINT)))) THEN CAST(NULL AS BIGINT) ELSE (10L div a0.c0) END) > 2L));

-- a computed value that is joined: v(x, z) :- n(x), z = x + 1, n(z).
SELECT s1.c0 AS c0, s1.c1 AS c1, coalesce(s1.e, CAST(NULL AS STRING)) AS e FROM (SELECT a0.c0 AS c0, try_add(a0.c0, 1L) AS c1, coalesce((CASE WHEN ((try_add(a0.c0, 1L) IS NULL) AND (a0.c0 IS NOT NULL) AND (1L IS NOT NULL)) THEN concat('+ overflows 64 bits: ', a0.c0, ', ', 1L) END), CAST(NULL AS STRING)) AS e FROM n a0) s1 JOIN n a2 ON (a2.c0 = s1.c1);

-- functors of symbols: u(x, y) :- p(x, z), y = cat(z, substr(z, x, 2)).
SELECT a0.c0 AS c0, concat(a0.c1, (CASE WHEN (((a0.c1 IS NOT NULL) AND (a0.c0 IS NOT NULL) AND (2L IS NOT NULL)) AND ((a0.c0 >= 0L) AND (a0.c0 < 2147483647L))) THEN substring(a0.c1, (CAST(a0.c0 AS INT) + 1), CAST((CASE WHEN (2L < 0L) THEN 2147483647L ELSE least(2L, 2147483647L) END) AS INT)) WHEN ((a0.c1 IS NOT NULL) AND (a0.c0 IS NOT NULL) AND (2L IS NOT NULL)) THEN '' END)) AS c1 FROM p a0;

-- a Python function: w(x) :- p(x, y), match("a.*", y).
SELECT a0.c0 AS c0, coalesce(rederive_match_32_symbol_32_symbol('a.*', a0.c1).error, CAST(NULL AS STRING)) AS e FROM p a0 WHERE ((rederive_match_32_symbol_32_symbol('a.*', a0.c1).error IS NOT NULL) OR rederive_match_32_symbol_32_symbol('a.*', a0.c1).value);
