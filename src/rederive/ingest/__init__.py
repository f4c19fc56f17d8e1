"""Input from outside: initial rows of files, change files, and streams. Read in this order:

input_file           files of initial rows
strict_json          one JSON value per line
change_file          JSON lines, one transaction each
stream_sources       what a stream can come from; users import it from `rederive.sources`
stream_reader        how Spark reads a source
micro_batch          a batch as operations and rejected input
streamed_files, change_feed, kafka_messages, debezium    batches of each kind of source; arrow_rows: their values
quarantine           the table of input that could not be read
ingestion            a running stream: one transaction for each batch
change_data_source   the other direction: changes of views as a Spark data source
"""
