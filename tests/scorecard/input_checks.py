"""What users hand over, and the code itself: I and S of the scorecard."""

from scorecard.card import Check, Mutant

HERE = "tests/scorecard/test_input_faults.py"
SOURCE = "tests/scorecard/test_source.py"
SIGNED = "tests/config/test_json_schema.py"
CONFIG = "tests/config/test_parser.py"
READING = "tests/data/io/test_image_and_map_readers.py"
FOLDER = "tests/data/datasets/test_folder.py"
EXPORT = "tests/inference/predict/test_pipeline.py"
NAMES = "tests/inference/predict/test_inputs.py"

CHECKS: tuple[Check, ...] = (
    Check(
        "I1",
        "20 wrong keys, on the command line and in files, at any depth",
        "exit code 2; all told at once, each with its place and the right suggestion (20 of 20); torch is not imported",
        "ultralytics: nearest key; lightly-train: all at once",
        (
            f"{HERE}::test_twenty_wrong_keys_are_all_told_at_once_each_with_the_right_one",
            f"{HERE}::test_wrong_keys_of_a_file_are_told_with_their_line",
            f"{CONFIG}::test_every_fault_is_named_at_once_with_line_and_hint",
            f"{SIGNED}::test_a_wrong_config_is_refused_before_torch_is_imported",
        ),
        (
            Mutant(
                "names and options are checked before torch is imported",
                "densevit/config/validation.py",
                "    if not run.plugins:",
                "    if False:",
                f"{SIGNED}::test_a_wrong_config_is_refused_before_torch_is_imported",
            ),
            Mutant(
                "the keys of parts are checked beside what is wrong in the tree",
                "densevit/config/parser.py",
                'without(tree, [fault["loc"] for fault in faults])',
                "tree",
                f"{HERE}::test_twenty_wrong_keys_are_all_told_at_once_each_with_the_right_one",
            ),
            Mutant(
                "other libraries' names are known",
                "densevit/registry.py",
                "    if alias in known:\n",
                "    if False:\n",
                f"{HERE}::test_twenty_wrong_keys_are_all_told_at_once_each_with_the_right_one",
            ),
            Mutant(
                "faults carry file and line",
                "densevit/config/validation.py",
                "            raise ConfigError(*map(locate, self.problems))\n",
                "            raise ConfigError(*self.problems)\n",
                f"{HERE}::test_wrong_keys_of_a_file_are_told_with_their_line",
            ),
        ),
    ),
    Check(
        "I2",
        "22 wrong values; numbers, words and doubled keys that YAML misreads; abbreviated options",
        "taken as meant, or exit code 2 with key, value and what would fit; never a traceback",
        "lightly-train: pydantic",
        (
            f"{HERE}::test_a_wrong_value_is_refused_with_key_value_and_what_would_fit",
            f"{SIGNED}::test_wrong_values_are_refused_before_torch_is_imported_unless_only_the_part_knows",
            f"{HERE}::test_values_that_yaml_misreads_come_as_they_were_meant",
            f"{HERE}::test_an_image_size_that_no_patches_fill_is_padded",
            f"{HERE}::test_options_are_never_guessed_from_their_beginning",
            f"{HERE}::test_a_twice_written_key_is_refused",
            f"{CONFIG}::test_yaml_scalars_mean_what_people_mean",
        ),
        (
            Mutant(
                "a rate is finite",
                "densevit/config/schema.py",
                "Field(gt=0, allow_inf_nan=False)",
                "Field(gt=0)",
                f"{HERE}::test_a_wrong_value_is_refused_with_key_value_and_what_would_fit",
            ),
            Mutant(
                "a range rises",
                "densevit/data/datasets/base.py",
                "    if not 0 <= ends[0] < ends[1] < inf:\n",
                "    if False:\n",
                f"{HERE}::test_a_wrong_value_is_refused_with_key_value_and_what_would_fit",
            ),
            Mutant(
                "a key stands once",
                "densevit/config/yaml_document.py",
                "                if key in tree:\n",
                "                if False:\n",
                f"{HERE}::test_a_twice_written_key_is_refused",
            ),
            Mutant(
                "options are written out",
                "densevit/cli/main.py",
                "description=module.__doc__, allow_abbrev=False)",
                "description=module.__doc__)",
                f"{HERE}::test_options_are_never_guessed_from_their_beginning",
            ),
        ),
    ),
    Check(
        "I3",
        "20 pictures: thin, gray, palette, CMYK, 16 bits, turned by EXIF, a PDF, misnamed, float",
        "one answer a pixel of the upright picture; the eight turned ones answer alike; training, evaluation and "
        "prediction see the same pixels; a clean error for the other two",
        "detectron2: tests of EXIF; lightly-train: of formats",
        (
            f"{HERE}::test_training_evaluation_and_prediction_see_the_same_pixels",
            f"{HERE}::test_pictures_turned_by_exif_give_the_answer_of_the_upright_one",
            f"{HERE}::test_the_zoo_is_trained_on_evaluated_and_exported",
        ),
        (
            Mutant(
                "pictures are turned upright",
                "densevit/data/io/images.py",
                "        turn = UPRIGHT.get(self.orientation)\n",
                "        turn = None\n",
                f"{HERE}::test_pictures_turned_by_exif_give_the_answer_of_the_upright_one",
            ),
            Mutant(
                "only formats with a reader are opened",
                "densevit/data/io/images.py",
                "        return READERS[kind]\n",
                "        return READERS[kind]\n    return PngImagePlugin.PngImageFile\n",
                f"{HERE}::test_the_zoo_is_trained_on_evaluated_and_exported",
            ),
        ),
    ),
    Check(
        "I4",
        "small files that claim gigabytes, archives and PDFs called pictures, a YAML of aliases, a strip of 30,000 x 8",
        "refused by the header with under 200 MB more memory; limit and option are named",
        "Pillow's default",
        (
            f"{HERE}::test_bombs_are_refused_by_their_header",
            f"{HERE}::test_a_strip_is_refused_where_the_resize_rule_would_blow_it_up_and_read_where_not",
            f"{HERE}::test_a_config_of_aliases_is_refused_before_it_grows",
            f"{READING}::test_what_is_no_picture_is_named_with_the_reason",
        ),
        (
            Mutant(
                "pixels are counted before they are decoded",
                "densevit/data/io/images.py",
                "        if width * height > max_pixels:\n",
                "        if False:\n",
                f"{HERE}::test_bombs_are_refused_by_their_header",
            ),
            Mutant(
                "configs have no aliases",
                "densevit/config/yaml_document.py",
                "            if isinstance(token, yaml.AliasToken | yaml.AnchorToken):\n",
                "            if False:\n",
                f"{CONFIG}::test_documents_that_mean_nothing_are_refused_with_their_line",
            ),
        ),
    ),
    Check(
        "I5",
        "an export of ten images: one bad, three of one name, outputs already there, killed at the fifth",
        "nine right files, exit code 3, a list of the failed; nothing is overwritten unasked; resuming makes only what "
        "is missing, and the same bytes",
        "lightly-train refuses a folder in use; Depth Pro mirrors folders",
        (
            f"{HERE}::test_an_export_killed_in_the_middle_is_resumed_to_the_same_bytes",
            f"{EXPORT}::test_a_file_or_a_read_only_folder_as_output_is_refused_before_any_work",
            f"{EXPORT}::test_what_a_killed_run_left_half_written_is_swept_away",
            f"{EXPORT}::test_resuming_with_other_settings_is_refused",
            f"{EXPORT}::test_an_output_never_replaces_an_input",
            f"{NAMES}::test_images_that_would_share_an_output_keep_their_suffix",
        ),
        (
            Mutant(
                "images of one name keep their suffixes",
                "densevit/inference/predict/inputs.py",
                "        names = [full[i] if i in clashing else name for i, name in enumerate(names)]\n",
                "        break\n",
                f"{NAMES}::test_images_that_would_share_an_output_keep_their_suffix",
            ),
            Mutant(
                "what is there is not overwritten unasked",
                "densevit/inference/predict/output_plan.py",
                '        if existing == "refuse" and (there :=',
                "        if False and (there :=",
                f"{EXPORT}::test_what_is_there_is_refused_then_overwritten_on_request",
            ),
            Mutant(
                "failed images end an export with 3",
                "densevit/inference/predict/pipeline.py",
                "        raise incomplete(summary, plan.folder / FAILED)\n",
                "        pass\n",
                f"{EXPORT}::test_one_bad_image_costs_one_line_and_the_others_are_done",
            ),
            Mutant(
                "outputs of other settings are not mixed",
                "densevit/inference/predict/output_plan.py",
                "    if differing:\n",
                "    if False:\n",
                f"{EXPORT}::test_resuming_with_other_settings_is_refused",
            ),
        ),
    ),
    Check(
        "I6",
        "lists, links, HDF5 files and archives that lead out of their folder by .., /, a link, NUL or file://",
        "refused unless --allow-outside-root; nothing is written outside of the folder",
        "none",
        (
            f"{HERE}::test_a_list_of_saved_maps_may_not_lead_out_of_their_folder",
            f"{HERE}::test_a_published_list_with_a_name_that_leads_out_is_refused",
            f"{HERE}::test_pairs_of_images_that_lie_elsewhere_are_refused",
            f"{HERE}::test_hdf5_never_opens_another_file",
            f"{HERE}::test_no_archive_writes_outside_of_its_folder",
            f"{HERE}::test_links_in_an_archive_are_not_made_so_nothing_is_written_through_them",
            f"{HERE}::test_a_link_out_of_a_training_folder_is_refused_unless_allowed",
            f"{FOLDER}::test_a_table_may_not_lead_out_of_its_root_unless_allowed",
            f"{FOLDER}::test_an_address_a_nul_or_a_name_that_leads_out_is_refused",
            f"{NAMES}::test_names_never_leave_the_output_folder",
            "tests/data/io/test_tar.py::test_names_that_lead_out_are_refused",
        ),
        (
            Mutant(
                "paths of a list stay in their root",
                "densevit/data/index/paths.py",
                "    if not allow_outside and not resolved.is_relative_to(root.resolve()):\n",
                "    if False:\n",
                f"{HERE}::test_a_list_of_saved_maps_may_not_lead_out_of_their_folder",
            ),
            Mutant(
                "names of a published list stay in the data set",
                "densevit/data/index/paths.py",
                "    for name in names:\n        if not name",
                "    for name in ():\n        if not name",
                f"{HERE}::test_a_published_list_with_a_name_that_leads_out_is_refused",
            ),
            Mutant(
                "an array is in the file that was opened",
                "densevit/data/io/arrays.py",
                " or dataset.file != file:\n",
                ":\n",
                f"{HERE}::test_hdf5_never_opens_another_file",
            ),
            Mutant(
                "names in an archive stay in its folder",
                "densevit/data/prepare/archives.py",
                '    if path.is_absolute() or ".." in path.parts:\n',
                "    if False:\n",
                f"{HERE}::test_no_archive_writes_outside_of_its_folder",
            ),
            Mutant(
                "links of a folder stay in its root",
                "densevit/data/index/matching.py",
                "            if not allow_outside and not target.is_relative_to(root.resolve()):\n",
                "            if False:\n",
                f"{HERE}::test_a_link_out_of_a_training_folder_is_refused_unless_allowed",
            ),
        ),
    ),
    Check(
        "S1",
        "code that unpickles, evaluates, runs a shell, unpacks blindly, hides errors or calls home",
        "none of 25 forms in densevit, tools, datasets and examples; no connection is opened without a network",
        "none has such a gate; smp: 5 of 5 loads with weights_only, MoGe 13 of 14",
        (
            f"{SOURCE}::test_the_source_has_no_call_that_runs_hides_or_opens_what_it_should_not",
            f"{SOURCE}::test_the_search_finds_each_of_them",
            f"{SOURCE}::test_torch_load_is_free_where_it_belongs_and_only_when_sure",
            f"{SOURCE}::test_dependencies_have_a_floor_and_torch_is_one_whose_loading_is_safe",
            f"{SOURCE}::test_training_evaluation_and_export_open_no_connection",
            f"{SOURCE}::test_a_plugin_is_the_one_way_to_run_code_and_must_be_named",
        ),
        (
            Mutant(
                "checkpoints load tensors only",
                "densevit/weights/readers.py",
                'map_location="cpu", weights_only=True)',
                'map_location="cpu", weights_only=False)',
                f"{SOURCE}::test_the_source_has_no_call_that_runs_hides_or_opens_what_it_should_not",
            ),
            Mutant(
                "weights come from a hub when asked only",
                "densevit/models/encoders/timm_vit.py",
                "        pretrained: bool = False,\n",
                "        pretrained: bool = True,\n",
                f"{SOURCE}::test_training_evaluation_and_export_open_no_connection",
            ),
        ),
    ),
)
