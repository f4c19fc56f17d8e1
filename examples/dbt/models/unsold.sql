{{ config(materialized='rederive') }}

SELECT item.item, item.kind
FROM {{ source('shop', 'item') }} AS item
LEFT ANTI JOIN {{ source('shop', 'sale') }} AS sale ON sale.item = item.item
