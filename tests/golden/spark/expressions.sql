-- column
a.c0;

-- all columns
a.*;

-- symbol with quotes and a dollar
'it\'s \u00245';

-- NULL of a type
CAST(NULL AS DECIMAL(10,2));

-- whole numbers
(3L + CAST('-3' AS BIGINT));

-- cast
CAST(c0 AS DECIMAL(20,0));

-- function
coalesce(c0, c1);

-- conjunction
(c0 AND c1 AND (NOT c0));

-- disjunction of nothing
FALSE;

-- null-safe equality
(c0 <=> c1);

-- plain equality
(c0 = c1);

-- NULL tests
((c0 IS NULL) OR (c1 IS NOT NULL));

-- case
(CASE WHEN (c0 IS NULL) THEN 0L WHEN c1 THEN 1L ELSE c0 END);

-- in
(c0 IN (1L, 2L));

-- field
f(c0).error;

-- window
row_number() OVER (PARTITION BY c0 ORDER BY c1 DESC NULLS LAST);

-- named
c0 AS c1;
